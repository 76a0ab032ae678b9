//! One client against one server, judged.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::capture::{Capture, Ports};
use crate::peers::{Orb, Peers, Variant};
use crate::process::{self, Server};
use crate::report::Report;
use crate::skips::Skips;

/// How long a client may take for all its checks; it takes a few seconds alone.
const LIFE: Duration = Duration::from_secs(180);

/// Whether the traffic of a run is captured and judged by Wireshark's dissector too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Only the client judges.
    Unwatched,
    /// A message that the dissector finds malformed is a failed check named `malformed-TYPE`.
    Dissected,
}

/// Runs all checks of `client` against `server` and returns how many passed. `folder` is for files of the run.
///
/// # Errors
/// A peer is missing or does not start, a check fails that interop/skips does not list, one listed there passes, or the
/// server does not end as the last check tells it to.
pub fn run(folder: &Path, server: Orb, client: Orb, variant: Variant, traffic: Traffic) -> Result<usize, String> {
    let peers = Peers::build(&folder.join("peers"))?;
    let suffix = if traffic == Traffic::Dissected { "-dissected" } else { "" };
    let files = folder.join(format!("{}-serves-{}-{}{suffix}", server.name(), client.name(), variant.name));
    fs::create_dir_all(&files).map_err(|error| format!("{}: {error}", files.display()))?;
    let skips = Skips::of(server.name(), client.name(), variant.name)?;

    let (ports, capture) = match traffic {
        Traffic::Unwatched => (Ports { server: 0, client: 0 }, None),
        Traffic::Dissected => {
            let ports = Ports::free()?;
            (ports, Some(Capture::start(&files, ports)?))
        }
    };
    let running = Server::start(peers.server(server, variant, ports.server), &files)?;
    let mut command = peers.client(client, variant, ports.client);
    command.arg(running.reference()).arg("--shutdown").args(skips.options());
    let finished = process::run(command, "client", &files, LIFE)?;
    let mut report = Report::read(&finished.output)
        .map_err(|trouble| format!("{trouble}\nclient:\n{}\nserver:\n{}", finished.output, running.output()))?;
    if let Some(capture) = capture {
        let (malformed, recognised) = capture.finish()?;
        // Each check is a request and a reply at least; fewer frames would mean that the capture saw nothing.
        if recognised < report.passed.len() {
            return Err(format!("the dissector recognised only {recognised} frames of GIOP"));
        }
        report.failed.extend(malformed);
    }
    let found = skips.judge(&report, traffic);
    if !found.is_empty() {
        return Err(format!("{}\nserver:\n{}", found.join("\n"), running.output()));
    }
    running.ends_by_itself()?;
    Ok(report.passed.len())
}
