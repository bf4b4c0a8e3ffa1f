# Two stages: a wheel with the compiled record loops is built in the first, the second holds only what runs.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Optional parts, separated by commas: docker build --build-arg EXTRAS=oauth,keystores,kerberos
ARG EXTRAS=
RUN case ",$EXTRAS," in *,kerberos,*) kerberos=libkrb5-dev ;; esac \
    && apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev $kerberos \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py pyspark_tidelog.py README.md LICENSE requirements.lock ./
COPY values values
COPY config config
COPY protocol protocol
COPY storage storage
COPY broker broker
COPY client client
COPY console console
COPY cli cli
COPY pipeline pipeline
COPY tidelog tidelog
COPY docs docs
# The packages of every broker by their hashes; those of the extras by their versions.
RUN python -m venv /opt/tidelog \
    && /opt/tidelog/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock \
    && TIDELOG_COMPILE=required /opt/tidelog/bin/pip install --no-cache-dir --disable-pip-version-check ".[console${EXTRAS:+,$EXTRAS}]" \
    && cd / && /opt/tidelog/bin/python -c "from tidelog.protocol.records import record_loops; assert record_loops.COMPILED" \
    && find /opt/tidelog -depth \( -name __pycache__ -o -name tests -o -name pip -o -name setuptools \) \
        -path '*site-packages*' -exec rm -rf {} + \
    && /opt/tidelog/bin/python -m compileall -q /opt/tidelog/lib

FROM ${PYTHON_IMAGE}
ARG EXTRAS=
RUN case ",$EXTRAS," in *,kerberos,*) apt-get update \
        && apt-get install -y --no-install-recommends libgssapi-krb5-2 \
        && rm -rf /var/lib/apt/lists/* ;; esac
LABEL org.opencontainers.image.title="Tidelog" \
      org.opencontainers.image.description="A message broker that speaks Kafka's wire protocol, with time at its heart" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent tidelog \
    && install -d -o tidelog -g tidelog -m 0750 /var/lib/tidelog
COPY --from=build /opt/tidelog /opt/tidelog
COPY deploy/docker/ready /usr/local/bin/tidelog-ready
ENV PATH=/opt/tidelog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDELOG_LOG_DIRS=/var/lib/tidelog \
    TIDELOG_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    TIDELOG_INSECURE_ALLOW=true \
    TIDELOG_METRICS_LISTENER=0.0.0.0:9464
USER tidelog
VOLUME /var/lib/tidelog
EXPOSE 9092 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 \
    CMD ["bash", "/usr/local/bin/tidelog-ready"]
ENTRYPOINT ["tidelog"]
CMD ["serve"]
