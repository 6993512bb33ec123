"""FastAPI: the only application of a module has any name."""

import asyncio

from fastapi import BackgroundTasks, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

shop = FastAPI()
count = 0


class Item(BaseModel):
    name: str
    price: float


@shop.get("/")
async def root():
    global count
    count += 1
    return {"count": count}


@shop.get("/sync")
def sync():
    global count
    count += 1
    return {"count": count}


@shop.post("/items")
async def create(item: Item):
    return {"name": item.name, "with_tax": item.price * 1.5}


@shop.post("/length")
async def length(request: Request):
    return {"length": sum([len(piece) async for piece in request.stream()])}


@shop.get("/stream")
async def stream():
    async def numbers():
        for number in range(3):
            yield "%d\n" % number
            await asyncio.sleep(0.001)

    return StreamingResponse(numbers(), media_type="text/plain")


@shop.get("/background")
async def background(tasks: BackgroundTasks):
    tasks.add_task(print, "the background is done")
    return {}


@shop.get("/missing")
async def missing():
    raise HTTPException(404, "nothing here")


@shop.get("/raises")
async def raises():
    raise RuntimeError("in the handler")
