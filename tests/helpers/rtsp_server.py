"""A real RTSP server, GStreamer's: live H.264 of a folder of JPEG images 00000.jpg, 00001.jpg ..., which begin again at
the end.

    python3 tests/helpers/rtsp_server.py PORT FOLDER [RATE] [WIDTH] [HEIGHT]        gives rtsp://127.0.0.1:PORT/door

It needs the Debian packages python3-gi, gir1.2-gst-rtsp-server-1.0, gstreamer1.0-plugins-good and
gstreamer1.0-plugins-ugly, and the system's own Python, which knows them; nothing of ostta.
"""

import sys


def serve(port: str, folder: str, rate: str = "25", width: str = "320", height: str = "240") -> None:
    # Only the system's own Python has these.
    import gi

    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    from gi.repository import GLib, Gst, GstRtspServer

    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(
        f"( multifilesrc location={folder}/%05d.jpg loop=true caps=image/jpeg,framerate={rate}/1 ! jpegdec "
        "! videoscale "
        f"! videoconvert ! video/x-raw,format=I420,width={width},height={height} ! identity sync=true "
        f"! x264enc tune=zerolatency speed-preset=ultrafast key-int-max={rate} "
        "! rtph264pay name=pay0 pt=96 config-interval=1 )"
    )
    factory.set_shared(True)
    server.get_mount_points().add_factory("/door", factory)
    server.attach(None)
    print("ready", flush=True)
    GLib.MainLoop().run()


if __name__ == "__main__":
    serve(*sys.argv[1:])
