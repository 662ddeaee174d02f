# simple-spk serve on a CPU, with the built-in model. See docs/serve.md.
FROM python:3.12-slim
RUN useradd --create-home --uid 10001 spk && mkdir /voices && chown spk /voices
WORKDIR /app
# torch first, in a layer of its own: it is large, and changes less often than the package.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.11"
COPY pyproject.toml README.md LICENSE ./
COPY simple_spk ./simple_spk
RUN pip install --no-cache-dir ".[serve,qdrant,vad]"
USER spk
VOLUME /voices
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["simple-spk", "serve", "--host", "0.0.0.0"]
CMD ["--voices", "/voices/voices.db", "--keys", "/voices/keys.json"]
