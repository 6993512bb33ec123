//! WSGI (PEP 3333): `application(environ, start_response)`, which blocks until it has answered.
//!
//! With one thread, an application is called on the reactor's own, as soon as the request's body is
//! here; with more, and for bodies that take time to arrive, on a thread of a pool. Either way it
//! talks to its exchange through a [`talk::Talk`].

mod answer;
mod environ;
mod input;
mod place;
mod pool;
mod program;
mod start;
mod talk;

pub(crate) use pool::Pool;
pub(crate) use program::WsgiProgram;
