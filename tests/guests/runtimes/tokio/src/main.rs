//! A multi-threaded tokio runtime: tasks, timers, channels, blocking work, sockets, signals; with
//! `serve`, a hyper server.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::{Mutex, mpsc, oneshot},
    time::{interval, sleep, timeout},
};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    if std::env::args().nth(1).as_deref() == Some("serve") {
        runtime.block_on(serve());
    }
    runtime.block_on(run());
    runtime.shutdown_timeout(Duration::from_secs(1));
    println!("shut down");
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// An ordinary server, whose handlers wait and use the runtime.
async fn serve() {
    let listener = TcpListener::bind("0.0.0.0:8080").await.expect("a listener");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(async move {
            // Who leaves early has left.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
    let body = request.into_body().collect().await?.to_bytes();
    sleep(Duration::from_millis(1)).await;
    let tasks: Vec<_> = (0..4u64)
        .map(|seed| tokio::task::spawn_blocking(move || (0..1000).fold(seed, |a, b| a ^ b)))
        .collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.expect("no panic");
    }
    let text = format!("{number} {sum} {}", String::from_utf8_lossy(&body));
    Ok(Response::new(Full::new(Bytes::from(text))))
}

async fn run() {
    let (sender, mut receiver) = mpsc::channel(4);
    for task in 0..10u64 {
        let sender = sender.clone();
        tokio::spawn(async move {
            for round in 0..100 {
                sender.send(task * round).await.expect("the receiver is there");
                tokio::task::yield_now().await;
            }
        });
    }
    drop(sender);
    let mut sum = 0;
    while let Some(number) = receiver.recv().await {
        sum += number;
    }
    println!("sum {sum}");

    let start = Instant::now();
    sleep(Duration::from_millis(10)).await;
    println!("slept {}", start.elapsed() >= Duration::from_millis(10));
    let mut ticks = interval(Duration::from_millis(2));
    for _ in 0..5 {
        ticks.tick().await;
    }
    println!("ticked");
    let never = std::future::pending::<()>();
    println!("timed out {}", timeout(Duration::from_millis(3), never).await.is_err());

    let (mut here, mut there) = UnixStream::pair().expect("a pair");
    let echo = tokio::spawn(async move {
        let mut buffer = vec![0; 3000];
        let mut total = 0;
        loop {
            let length = there.read(&mut buffer).await.expect("a read");
            if length == 0 {
                return total;
            }
            total += length;
            there.write_all(&buffer[..length]).await.expect("a write");
        }
    });
    for size in [1, 1000, 40_000] {
        let sent = vec![size as u8; size];
        here.write_all(&sent).await.expect("a write");
        let mut got = vec![0; size];
        here.read_exact(&mut got).await.expect("a read");
        println!("echoed {size} {}", got == sent);
    }
    drop(here);
    println!("total {}", echo.await.expect("no panic"));

    let blocking: Vec<_> = (0..6u64)
        .map(|seed| {
            tokio::task::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(2));
                (0..100_000).fold(seed, |sum, number| sum.wrapping_mul(31).wrapping_add(number))
            })
        })
        .collect();
    for task in blocking {
        println!("blocking {:x}", task.await.expect("no panic"));
    }

    let shared = std::sync::Arc::new(Mutex::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let shared = shared.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    *shared.lock().await += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    println!("shared {}", shared.lock().await);

    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || sender.send("from a thread"));
    println!("{}", receiver.await.expect("it was sent"));

    let panicked = tokio::spawn(async { std::panic::resume_unwind(Box::new("on purpose")) }).await;
    println!("panicked {}", panicked.is_err_and(|error| error.is_panic()));

    let mut stream = signal(SignalKind::user_defined1()).expect("a handler");
    let killer = std::process::Command::new("/nowhere/kill").status();
    println!("no processes {}", killer.is_err());
    println!("no signal {}", timeout(Duration::from_millis(3), stream.recv()).await.is_err());
}
