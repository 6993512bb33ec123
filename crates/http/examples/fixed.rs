//! Serves one fixed response on one thread, for measuring what the host costs by itself:
//! `cargo run --release -p sandtide-http --example fixed -- 127.0.0.1:8081`, then
//! `wrk -t1 -c64 http://127.0.0.1:8081/`.

use std::{error::Error, future::pending, sync::Arc};

use sandtide_http::{Options, Server};
use sandtide_runtime::{Answer, FixedResponse, Route, Runtime, Table, Tenant};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let answer = Answer::Fixed(FixedResponse::text("Hello, World!"));
    let tenant = Tenant::new("fixed", vec![Route::everything()], answer);
    let runtime = Runtime::new(Table::build([Arc::new(tenant)])?, Default::default());
    let server = Server::bind(&[address.parse()?], Options { threads: 1, ..Options::default() })?;
    println!("listening on {}", server.addresses()[0]);
    server.run(runtime, pending())?;
    Ok(())
}
