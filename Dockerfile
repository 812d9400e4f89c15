# syntax=docker/dockerfile:1
# docker build -t ostta .                                    the processor
# docker build -t ostta --build-arg TORCH=cu128 .            CUDA 12.8; run it with --gpus all
# docker build -t ostta --build-arg EXTRAS=clip,cli,serve,postgres,ray .      with Ray, for --engine ray

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
# Which wheels of torch: the last part of an address below https://download.pytorch.org/whl/.
ARG TORCH=cpu
ARG EXTRAS=clip,cli,serve,postgres
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/ostta
# torch first and alone: it is by far the largest, and seldom changes.
COPY constraints.txt ./
RUN /opt/ostta/bin/pip install --only-binary :all: -c constraints.txt \
    --index-url "https://download.pytorch.org/whl/${TORCH}" --extra-index-url https://pypi.org/simple torch
COPY pyproject.toml hatch_build.py README.md LICENSE CHANGELOG.md ./
COPY LICENSES ./LICENSES
COPY src ./src
RUN /opt/ostta/bin/pip install -c constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="ostta" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/ostta /opt/ostta
RUN groupadd --gid 10001 ostta \
    && useradd --uid 10001 --gid ostta --home-dir /var/lib/ostta --no-create-home --shell /usr/sbin/nologin ostta \
    && install --directory --owner=ostta --group=ostta --mode=0700 /var/lib/ostta /var/lib/ostta/states
# Models that are fetched by name are kept beside the states, so that a restart does not fetch them again.
ENV PATH=/opt/ostta/bin:$PATH \
    HF_HOME=/var/lib/ostta/models \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/ostta
VOLUME /var/lib/ostta
EXPOSE 8000
# Health asks whether the process answers; /ready, whether the model does, is for a load balancer.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["ostta"]
CMD ["serve", "--backbone", "embedded", "--host", "0.0.0.0", "--port", "8000", "--state-dir", "/var/lib/ostta/states", "--token-file", "/run/secrets/ostta_token"]
