//! Keeps COUNT connections to 127.0.0.1:PORT open until its standard input ends: `idle-peer PORT
//! COUNT`.
#![forbid(unsafe_code)]

use std::io::Read;
use std::net::TcpStream;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: idle-peer PORT COUNT".into());
    };
    let (port, count): (u16, u64) = (port.parse()?, count.parse()?);
    corelane_sys::process::raise_descriptor_limit(count + 100)?;
    let connections = (0..count).map(|_| TcpStream::connect(("127.0.0.1", port))).collect::<Result<Vec<_>, _>>()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(connections);
    Ok(())
}
