//! Accepting connections, as many as there is room for.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::watch, task::spawn_local, time::sleep};

use crate::{connection::serve, host::Host, listen::Listener, peer::Peer, transport::Stream};

/// How long to wait before accepting again when that failed: usually for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until it is told to stop, and then what waits already: the kernel has told those clients
/// that they are connected.
pub(crate) async fn accept(listener: Listener, host: Rc<Host>, mut stop: watch::Receiver<bool>) {
    host.doorbell.watch(&listener);
    let mut stopped = pin!(async move {
        // An error means that the server is gone, which is a shutdown, too.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut is_stopped = false;
    let mut poll_stopped = |cx: &mut Context<'_>| {
        is_stopped = is_stopped || stopped.as_mut().poll(cx).is_ready();
        if is_stopped { Poll::Ready(()) } else { Poll::Pending }
    };
    loop {
        let accepted = poll_fn(|cx| match listener.poll_accept(cx) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            Poll::Pending => poll_stopped(cx).map(|()| None),
        });
        match accepted.await {
            None => return,
            Some(Ok((stream, peer))) => {
                // It waits here, and those behind it in the kernel.
                let connections = &host.connections;
                if poll_fn(|cx| Poll::Ready(connections.poll_room(cx))).await.is_pending() {
                    connections.close_one();
                    poll_fn(|cx| match connections.poll_room(cx) {
                        Poll::Pending => poll_stopped(cx),
                        ready => ready,
                    })
                    .await;
                }
                begin(stream, peer, &listener, &host);
            }
            Some(Err(error)) if is_of_one_connection(&error) => {}
            Some(Err(error)) => {
                tracing::error!(%error, "cannot accept connections");
                sleep(PAUSE).await;
            }
        }
    }
}

fn begin(stream: Stream, peer: Peer, listener: &Listener, host: &Rc<Host>) {
    host.doorbell.watch(&stream);
    let listed = host.connections.add();
    spawn_local(serve(stream, peer, listener.listen.clone(), host.clone(), listed));
}

/// Whether only the connection that was to be accepted is concerned.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
