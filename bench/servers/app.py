"""Answers every request with a few bytes: `uvicorn app:app`."""

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI()


@app.get("/", response_class=PlainTextResponse)
async def hello():
    return "Hello, World!\n"
