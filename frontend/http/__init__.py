"""Models over HTTP: OpenAI's endpoints, figures for Prometheus, and a page to chat with a model and monitor it.

`serve.py` starts it for the daemon, `application.py` assembles it, `operations.py` lists the endpoints, `models.py` is
the interface to the models behind it. A request passes through `connections/`, `requests/`, `endpoints/` and
`answers/`. All but `options.py` needs the extra `penstock[http]`.
"""
