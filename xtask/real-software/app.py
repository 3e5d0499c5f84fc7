"""A Flask application with sessions, as its documentation shows them."""

from flask import Flask, make_response, request, session

app = Flask(__name__)
app.secret_key = "for tests"


@app.post("/login/<name>")
def login(name):
    session["name"] = name
    return name


@app.get("/me/<policy>")
def me(policy):
    session["visits"] = session.get("visits", 0) + 1
    response = make_response(f"hello {session.get('name', 'stranger')}")
    return sent(response, policy)


@app.get("/seen/<policy>")
def seen(policy):
    """Reads the session and leaves it as it is: Flask adds Vary, and no Set-Cookie."""
    return sent(make_response(f"hello {session.get('name', 'stranger')}"), policy)


def sent(response, policy):
    if policy != "none":
        response.headers["Cache-Control"] = policy
    # One weak validator for every client, as a version of the page would be.
    response.set_etag("version", weak=True)
    return response.make_conditional(request)
