//! Memory grows with the bytes that arrive, not with the announced length of a message.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use corelane::Endpoint;
use corelane_tests::{EVERY_DISPATCH, client, serve};

/// Returns the size in bytes of the writable mappings of this process. Of a mapping for which the
/// kernel reserves no memory, only the resident bytes count.
fn promised() -> u64 {
    let map = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut size, mut total, mut resident) = (0, 0, 0);
    for line in map.lines() {
        let number = || line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024;
        if line.starts_with("Size:") {
            size = number();
        } else if line.starts_with("Rss:") {
            resident = number();
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag| flags.split_whitespace().any(|one| one == flag);
            // The flag `nr` marks a mapping for which the kernel reserves no memory.
            total += if !has("wr") {
                0
            } else if has("nr") {
                resident
            } else {
                size
            };
        }
    }
    total
}

fn has_read_everything(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).all(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let here = fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "01";
        !here || fields[4].ends_with(":00000000")
    })
}

#[test]
fn announced_lengths_commit_no_memory() {
    const PEERS: u64 = 200;
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
        let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        // A message without a length makes the server allocate its buffers and stacks before the
        // measurement.
        let mut streams: Vec<TcpStream> = (0..PEERS)
            .map(|_| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.write_all(b"GIOP").unwrap();
                stream
            })
            .collect();
        let settle = || {
            while server.orb.event_counts().connections_opened < PEERS + 1 || !has_read_everything(port) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        settle();
        let before = promised();
        for stream in &mut streams {
            stream.write_all(b"\x01\x02\x00\x00\x03\xc0\x00\x00").unwrap();
        }
        settle();
        for stream in &mut streams {
            stream.write_all(b"\x00").unwrap();
        }
        settle();
        let more = promised().saturating_sub(before);
        assert!(more < PEERS * (64 << 10), "{dispatch:?}: {more} octets for {PEERS} announcements of 60 MiB");
        assert_eq!(probe.cube_octet(3).unwrap(), 27);
        assert_eq!(server.orb.event_counts().protocol_faults, 0, "{dispatch:?}");
    }
}
