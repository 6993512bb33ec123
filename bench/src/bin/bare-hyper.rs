//! The bar for the vanilla server: hyper, and nothing else, answering what the vanilla tenant
//! answers. One thread, one `current_thread` runtime.
//!
//! Usage: `bare-hyper ADDRESS`

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(&address))
}

async fn serve(address: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await?;
    eprintln!("ready on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::task::spawn_local(async move {
            let answer = service_fn(|_| async {
                let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, World!\n")));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
                Ok::<_, Infallible>(response)
            });
            // A client that goes away in the middle is no event here.
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}
