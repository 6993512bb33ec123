//! A multi-threaded tokio runtime: tasks, timers, channels, blocking work, sockets, signals.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
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
    runtime.block_on(run());
    runtime.shutdown_timeout(Duration::from_secs(1));
    println!("shut down");
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
