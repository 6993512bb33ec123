//! An ordinary server with hyper and tokio. Each request finds `COUNT` as it was before the first one.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicU64, Ordering},
};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

static COUNT: AtomicU64 = AtomicU64::new(0);

async fn answer(request: Request<hyper::body::Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let text = format!("{} {}: request {count}\n", request.method(), request.uri().path());
    Ok(Response::new(Full::from(text)))
}

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:3000").await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::task::spawn(async move {
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
                if let Err(error) = connection.await {
                    eprintln!("{error}");
                }
            });
        }
    })
}
