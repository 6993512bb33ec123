"""A FastAPI application. Each request finds `items` as it was before the first one."""

import asyncio
import random

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

app = FastAPI()
items = {"1": {"name": "a first item", "price": 1.5}}


class Item(BaseModel):
    name: str
    price: float


@app.get("/")
async def root():
    return {"items": len(items), "random": random.random()}


@app.put("/items/{key}", status_code=201)
async def put(key: str, item: Item):
    items[key] = item.model_dump()
    return items


@app.get("/items/{key}")
async def get(key: str):
    if key not in items:
        raise HTTPException(404, "no such item")
    return items[key]


@app.get("/count")
async def count():
    async def numbers():
        for number in range(5):
            yield f"{number}\n"
            await asyncio.sleep(0.2)

    return StreamingResponse(numbers(), media_type="text/plain")
