//! zenoh's queries over TCP, or over TCP with shared memory for large payloads.
//!
//! `CORELANE_ZENOH_SHARED_MEMORY=1` permits shared memory.

use std::net::TcpListener;

use corelane_rpc_peers::{Calls, Failure, checked, measure_as_told, reference, serve_until_end};
use zenoh::query::ConsolidationMode;
use zenoh::{Config, Session, Wait};

const OCTETS: &str = "cubit/octets";

struct Client(Session);

impl Client {
    fn ask<R>(&self, sent: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        // Without consolidation, the reply reaches the caller before the end of the query.
        let query = self.0.get(OCTETS).payload(sent).consolidation(ConsolidationMode::None);
        let reply = query.wait()?.recv()?;
        let sample = reply.into_result().map_err(|_| "the reply is an error")?;
        let octets = sample.payload().to_bytes();
        Ok(read(&octets))
    }
}

impl Calls for Client {
    async fn octet(&mut self, value: u8) -> Result<u8, Failure> {
        self.ask(&[value], |reply| reply.first().copied())?.ok_or_else(|| "the reply is empty".into())
    }

    async fn octets(&mut self, sent: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure> {
        self.ask(sent, |reply| checked(sent, reply, whole))?
    }
}

fn open(settings: &[(&str, String)]) -> Result<Session, Failure> {
    let memory = std::env::var_os("CORELANE_ZENOH_SHARED_MEMORY").is_some();
    let mut config = Config::default();
    config.insert_json5("scouting/multicast/enabled", "false")?;
    config.insert_json5("transport/shared_memory/enabled", if memory { "true" } else { "false" })?;
    for (key, value) in settings {
        config.insert_json5(key, value)?;
    }
    zenoh::open(config).wait()
}

fn main() -> Result<(), Failure> {
    if let Some(endpoint) = reference()? {
        let session = open(&[("mode", "\"client\"".into()), ("connect/endpoints", format!("[\"{endpoint}\"]"))])?;
        let mut client = Client(session);
        pollster::block_on(measure_as_told(&mut client))?;
        return client.0.close().wait();
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let endpoint = format!("tcp/127.0.0.1:{port}");
    let session = open(&[("mode", "\"router\"".into()), ("listen/endpoints", format!("[\"{endpoint}\"]"))])?;
    let answer = |query: zenoh::query::Query| {
        let payload = query.payload().cloned().unwrap_or_default();
        if let Err(error) = query.reply(OCTETS, payload).wait() {
            eprintln!("a reply cannot be sent: {error}");
        }
    };
    let _queryable = session.declare_queryable(OCTETS).callback(answer).wait()?;
    serve_until_end(&endpoint)?;
    session.close().wait()
}
