// The search of the theme runs in a web worker, and browsers start none for a page that is opened as a file.
// For such a page, this class runs the same script in a hidden frame. It has what the search needs, not all of `Worker`.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.started = new Promise((resolve, reject) => {
        frame.addEventListener("load", () => {
          const inner = frame.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inner.document.createElement("script");
          script.src = new URL(address, location);
          script.onload = () => resolve(inner);
          script.onerror = () => reject(new Error(`${script.src} cannot be loaded.`));
          inner.document.head.append(script);
        }, { once: true });
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      const inner = await this.started;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }
  };
}
