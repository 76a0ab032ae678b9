//! Serves a probe until its standard input ends: `probe-server`.
//!
//! Prints its port and the probe's reference.
#![forbid(unsafe_code)]

use std::io::Read;

use corelane::{Dispatch, Endpoint};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = corelane_tests::serve(Dispatch::LeaderFollowers { threads: 2 });
    let Some(Endpoint::Tcp { port, .. }) = server.orb.endpoints().first().cloned() else {
        return Err("it listens at no TCP port".into());
    };
    println!("{port} {}", server.ior);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
