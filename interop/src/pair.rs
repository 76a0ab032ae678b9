//! One client against one server, judged.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::peers::{Orb, Peers, Variant};
use crate::process::{self, Server};
use crate::report::Report;
use crate::skips::Skips;

/// How long a client may take for all its checks; it takes a few seconds alone.
const LIFE: Duration = Duration::from_secs(180);

/// Runs all checks of `client` against `server` and returns how many passed. `folder` is for files of the run.
///
/// # Errors
/// A peer is missing or does not start, a check fails that interop/skips does not list, one listed there passes, or the server does
/// not end as the last check tells it to.
pub fn run(folder: &Path, server: Orb, client: Orb, variant: Variant) -> Result<usize, String> {
    let peers = Peers::build(&folder.join("peers"))?;
    let files = folder.join(format!("{}-serves-{}-{}", server.name(), client.name(), variant.name));
    fs::create_dir_all(&files).map_err(|error| format!("{}: {error}", files.display()))?;
    let skips = Skips::of(server.name(), client.name(), variant.name)?;

    let running = Server::start(peers.server(server, variant), &files)?;
    let mut command = peers.client(client, variant);
    command.arg(running.reference()).arg("--shutdown").args(skips.options());
    let finished = process::run(command, "client", &files, LIFE)?;
    let report = Report::read(&finished.output)
        .map_err(|trouble| format!("{trouble}\nclient:\n{}\nserver:\n{}", finished.output, running.output()))?;
    let found = skips.judge(&report);
    if !found.is_empty() {
        return Err(format!("{}\nserver:\n{}", found.join("\n"), running.output()));
    }
    running.ends_by_itself()?;
    Ok(report.passed.len())
}
