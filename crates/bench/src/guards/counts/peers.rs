//! Locks per call of other ORBs. A preloaded library counts them (interop/peers/locks).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{FigureLabel, MeasuredSubject};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::peer::{BuiltPeer, CountingLibrary, PeerInvocation, PeerKind, PeerThreads, output_folder};
use crate::sample::Samples;
use crate::value::SingleValue;

/// Numbers of calls of two runs. The difference of their counts excludes the start and the end of a
/// program.
const RUNS: [usize; 2] = [1000, 3000];

type LockCounts = [f64; 2];

pub(super) fn locks(kind: PeerKind, options: &BenchOptions) -> Result<Vec<SingleValue>, Failure> {
    let peer = options.peer(kind)?;
    let library = build(&options.peers_folder)?;
    let mut runs = Vec::new();
    for calls in RUNS {
        runs.push(run(&peer, &library, calls, options)?);
    }
    let [first, second] = [&runs[0], &runs[1]];
    let calls = (RUNS[1] - RUNS[0]) as f64;
    let mut values = Vec::new();
    for (side, name) in ["client", "server"].into_iter().enumerate() {
        for (at, quantity) in ["locks", "waits and signals"].into_iter().enumerate() {
            values.push(SingleValue {
                label: FigureLabel {
                    bench: "counts",
                    peer: kind.name(),
                    transport: "tcp",
                    op: "octet".to_owned(),
                    config: "as it comes".to_owned(),
                    axis_point: None,
                },
                quantity: format!("{name}: {quantity}"),
                value: (second[side][at] - first[side][at]) / calls,
                unit: "",
                bound: None,
            });
        }
    }
    Ok(values)
}

fn run(peer: &BuiltPeer, library: &Path, calls: usize, options: &BenchOptions) -> Result<[LockCounts; 2], Failure> {
    let files = ["client", "server"].map(|side| library.with_file_name(format!("{side}-{}", std::process::id())));
    let counting = |file: &PathBuf| CountingLibrary { library: library.to_path_buf(), file: file.clone() };
    let (server, reference) = peer.clone().counting(counting(&files[1])).serve(
        BaselineTransport::Tcp,
        PeerThreads::Default,
        &options.placement,
    )?;
    let client = peer.clone().counting(counting(&files[0]));
    let mut client =
        client.client(&reference, MeasuredOperation::Octet, server.pid(), PeerInvocation::Stubs, &options.placement)?;
    client.run(0, calls, &mut Samples::with_capacity(calls))?;
    drop(client);
    drop(server);
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file);
        let _ = fs::remove_file(file);
        parse(&text.unwrap_or_default())
            .ok_or_else(|| Failure::new(format!("{}'s program has written no counts", peer.kind())))
    };
    Ok([read(&files[0])?, read(&files[1])?])
}

fn parse(text: &str) -> Option<LockCounts> {
    let (locks, conditions) = text.trim().split_once(' ')?;
    Some([locks.parse().ok()?, conditions.parse().ok()?])
}

fn build(peers: &Path) -> Result<PathBuf, Failure> {
    let out = output_folder("locks")?;
    let library = out.join("locks.so");
    let mut make = Command::new("make");
    make.arg("-C").arg(peers.join("locks")).arg(format!("OUT={}", out.display())).arg(&library).stdin(Stdio::null());
    match make.output() {
        Ok(output) if output.status.success() => Ok(library),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Failure::new(format!(
                "the library that counts locks does not build: {}",
                said.lines().next().unwrap_or_default()
            )))
        }
        Err(error) => Err(Failure::new(format!("`make` cannot be run: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_written_by_the_library_are_parsed() {
        assert_eq!(parse("12 3\n"), Some([12.0, 3.0]));
        assert_eq!(parse("12"), None);
        assert_eq!(parse(""), None);
    }
}
