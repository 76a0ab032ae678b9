//! One client against one server, judged.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::capture::{Capture, Ports, Verdict};
use crate::peers::{Orb, Peers, Variant};
use crate::process::{self, Server};
use crate::report::Report;
use crate::skips::Skips;

/// How long a client may take for all its checks; it takes a few seconds alone.
const LIFE: Duration = Duration::from_secs(180);

/// The greatest large message of a dissected run: enough for fragments, and little enough to be captured without loss.
const DISSECTED_BIG: &str = "20000";

/// How often a run is repeated because its capture lost packets.
const CAPTURES: usize = 5;

/// Whether the traffic of a run is captured and judged by Wireshark's dissector too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Only the client judges.
    Unwatched,
    /// A message that the dissector finds malformed is a failed check named `malformed-TYPE`.
    Dissected,
}

/// Options of one run beside those of its variant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'o> {
    /// Part of the name of the run's folder.
    pub name: &'o str,
    /// The server's options.
    pub server: &'o [&'o str],
    /// The client's options.
    pub client: &'o [&'o str],
}

/// Runs all checks of `client` against `server` and returns how many passed. `folder` is for files of the run.
///
/// # Errors
/// A peer is missing or does not start, a check fails that interop/skips does not list, one listed there passes, or the
/// server does not end as the last check tells it to.
pub fn run(folder: &Path, server: Orb, client: Orb, variant: Variant, traffic: Traffic) -> Result<usize, String> {
    run_with(folder, server, client, variant, traffic, Extra::default())
}

/// As [`run`], the programs given further options.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    folder: &Path,
    server: Orb,
    client: Orb,
    variant: Variant,
    traffic: Traffic,
    extra: Extra<'_>,
) -> Result<usize, String> {
    let run = Run { peers: Peers::build(&folder.join("peers"))?, server, client, variant, extra };
    let name = format!("{}-serves-{}-{}{}", server.name(), client.name(), variant.name, extra.name);
    match traffic {
        Traffic::Unwatched => run.unwatched(&folder.join(name)),
        Traffic::Dissected => run.dissected(&folder.join(name + "-dissected")),
    }
}

struct Run<'o> {
    peers: &'static Peers,
    server: Orb,
    client: Orb,
    variant: Variant,
    extra: Extra<'o>,
}

impl Run<'_> {
    fn unwatched(&self, files: &Path) -> Result<usize, String> {
        make_folder(files)?;
        let skips = self.skips()?;
        let (report, talk) = self.calls(files, Ports { server: 0, client: 0 }, &skips.options())?;
        judge(&skips, &report, &talk, Traffic::Unwatched)
    }

    fn dissected(&self, files: &Path) -> Result<usize, String> {
        make_folder(files)?;
        let skips = self.skips()?;
        let mut options = skips.options();
        options.extend(["--big", DISSECTED_BIG]);
        for _ in 0..CAPTURES {
            let ports = Ports::free()?;
            let capture = Capture::start(files, ports)?;
            let (mut report, talk) = self.calls(files, ports, &options)?;
            let Verdict::Complete { malformed, recognised } = capture.finish()? else { continue };
            // Each check is a request at least; fewer packets would mean that the capture saw something else.
            if recognised < report.passed.len() {
                return Err(format!("the dissector recognised only {recognised} packets of GIOP"));
            }
            report.failed.extend(malformed);
            return judge(&skips, &report, &talk, Traffic::Dissected);
        }
        Err(format!("{CAPTURES} captures lost packets; is the machine overloaded?"))
    }

    /// The client's report, and what the server printed.
    fn calls(&self, files: &Path, ports: Ports, options: &[&str]) -> Result<(Report, String), String> {
        let mut command = self.peers.server(self.server, self.variant, ports.server);
        command.args(self.extra.server);
        let server = Server::start(command, files)?;
        let mut command = self.peers.client(self.client, self.variant, ports.client);
        command.arg(server.reference()).arg("--shutdown").args(options).args(self.extra.client);
        let finished = process::run(command, "client", files, LIFE)?;
        let report = Report::read(&finished.output)
            .map_err(|trouble| format!("{trouble}\nclient:\n{}\nserver:\n{}", finished.output, server.output()))?;
        let talk = server.output();
        server.ends_by_itself()?;
        Ok((report, talk))
    }

    fn skips(&self) -> Result<Skips, String> {
        Skips::of(self.server.name(), self.client.name(), self.variant.name)
    }
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn judge(skips: &Skips, report: &Report, talk: &str, traffic: Traffic) -> Result<usize, String> {
    let found = skips.judge(report, traffic);
    if found.is_empty() { Ok(report.passed.len()) } else { Err(format!("{}\nserver:\n{talk}", found.join("\n"))) }
}
