# Penstock's daemon in a container, for processors: docker build -t penstock . ; docker run --rm -p 127.0.0.1:8000:8000 penstock
# Every kernel variant is compiled here, and the machine that runs the container chooses among them.

FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates g++ python3 python3-venv
RUN python3 -m venv /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH PIP_NO_CACHE_DIR=1
COPY . /source
RUN PENSTOCK_VARIANTS=all pip install "/source[http]"

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 penstock && install -d -o penstock /models
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH HF_HOME=/models/huggingface PENSTOCK_CACHE=/models/penstock
USER penstock
VOLUME /models
EXPOSE 8000
HEALTHCHECK --start-period=10m CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["penstock"]
CMD ["serve", "pocket", "--http", "0.0.0.0:8000"]
