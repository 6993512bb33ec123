//! ASGI 3: `application(scope, receive, send)`.

mod cycle;
mod lifespan;
mod message;
mod place;
mod program;
mod scope;

pub(crate) use cycle::Cycle;
pub(crate) use lifespan::Lifespan;
pub(crate) use program::AsgiProgram;
