//! Runs a client against a server and checks the result.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::capture::{Capture, CaptureVerdict, Ports};
use crate::expected_traffic::ExpectedTraffic;
use crate::peers::{Orb, Peers, Variant};
use crate::process::{self, Server};
use crate::report::Report;
use crate::skips::Skips;

const LIFE: Duration = Duration::from_secs(180);

const CAPTURES: usize = 5;

/// Says if Wireshark's dissector checks the traffic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficCheck {
    /// The traffic is not captured.
    Unchecked,
    /// Malformed messages are failed checks named `malformed-TYPE`. Unexpected versions and
    /// fragments are failed checks named `wire-...`.
    Dissected,
}

/// Options of a run, in addition to the options of its variant.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtraOptions<'o> {
    /// A suffix of the name of the run's folder.
    pub name: &'o str,
    /// The server's options.
    pub server: &'o [&'o str],
    /// The client's options.
    pub client: &'o [&'o str],
    /// If set, the client gets a corbaloc URL with this GIOP version and the server's plain key.
    /// Otherwise it gets the reference that the server has published.
    pub corbaloc: Option<CorbalocVersion>,
}

/// The GIOP version in a corbaloc URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorbalocVersion {
    /// No version: GIOP 1.0.
    Absent,
    /// GIOP 1.2.
    Giop12,
}

/// Runs the client's checks against the server and returns the report. The files of the run are in
/// a folder below `folder`.
///
/// # Errors
///
/// A peer is missing or does not start or end, a check fails that interop/skips does not list, or a
/// listed check passes.
pub fn run(folder: &Path, server: Orb, client: Orb, variant: Variant, traffic: TrafficCheck) -> Result<Report, String> {
    run_with(folder, server, client, variant, traffic, ExtraOptions::default())
}

/// Runs the client's checks as [`run`] does, with further options for the programs.
///
/// # Errors
///
/// The errors of [`run`].
pub fn run_with(
    folder: &Path,
    server: Orb,
    client: Orb,
    variant: Variant,
    traffic: TrafficCheck,
    extra: ExtraOptions<'_>,
) -> Result<Report, String> {
    let run = Run { peers: Peers::build(&folder.join("peers"))?, server, client, variant, extra };
    let name = format!("{}-serves-{}-{}{}", server.name(), client.name(), variant.name, extra.name);
    match traffic {
        TrafficCheck::Unchecked => run.unchecked(&folder.join(name)),
        TrafficCheck::Dissected => run.dissected(&folder.join(name + "-dissected")),
    }
}

struct Run<'o> {
    peers: &'static Peers,
    server: Orb,
    client: Orb,
    variant: Variant,
    extra: ExtraOptions<'o>,
}

impl Run<'_> {
    fn unchecked(&self, files: &Path) -> Result<Report, String> {
        make_folder(files)?;
        let skips = self.skips()?;
        let (report, talk) = self.calls(files, Ports::find_free()?, &skips.client_options())?;
        judge(&skips, report, &talk, TrafficCheck::Unchecked)
    }

    fn dissected(&self, files: &Path) -> Result<Report, String> {
        make_folder(files)?;
        let skips = self.skips()?;
        let expected = self.expected_traffic()?;
        for _ in 0..CAPTURES {
            let ports = Ports::find_free()?;
            let capture = Capture::start(files, ports)?;
            let (mut report, talk) = self.calls(files, ports, &skips.client_options())?;
            let CaptureVerdict::Complete { malformed, messages } = capture.finish(&skips.dissector_preferences())?
            else {
                continue;
            };
            // Each check makes at least one request.
            if messages.len() < report.passed.len() {
                return Err(format!("the dissector recognised only {} messages of GIOP", messages.len()));
            }
            report.failed.extend(malformed);
            report.failed.extend(expected.failed_checks(&messages));
            return judge(&skips, report, &talk, TrafficCheck::Dissected);
        }
        Err(format!("{CAPTURES} captures were incomplete or misled the dissector; is the machine overloaded?"))
    }

    fn expected_traffic(&self) -> Result<ExpectedTraffic, String> {
        let ExtraOptions { server, client, corbaloc, .. } = self.extra;
        let mut expected = ExpectedTraffic::of_run((self.server, server), (self.client, client), self.variant)?;
        if corbaloc == Some(CorbalocVersion::Absent) {
            // Without a version in the URL, calls of the URL's object use GIOP 1.0. Calls of other
            // objects use the version of their references.
            expected.call_versions.insert(0);
        }
        Ok(expected)
    }

    fn calls(&self, files: &Path, ports: Ports, options: &[&str]) -> Result<(Report, String), String> {
        let mut command = self.peers.server_command(self.server, self.variant, ports.server);
        command.args(self.extra.server);
        let server = Server::start(command, files)?;
        let mut command = self.peers.client_command(self.client, self.variant, ports.client);
        match self.extra.corbaloc {
            None => command.arg(server.reference()),
            Some(CorbalocVersion::Absent) => command.arg(format!("corbaloc:iiop:127.0.0.1:{}/Interop", ports.server)),
            Some(CorbalocVersion::Giop12) => {
                command.arg(format!("corbaloc:iiop:1.2@127.0.0.1:{}/Interop", ports.server))
            }
        };
        // A later option overrides an earlier option, so the options of interop/skips come last.
        command.arg("--shutdown").args(self.extra.client).args(options);
        let finished = process::run(command, "client", files, LIFE)?;
        let report = Report::parse(&finished.output)
            .map_err(|trouble| format!("{trouble}\nclient:\n{}\nserver:\n{}", finished.output, server.output()))?;
        let talk = server.output();
        server.wait_for_exit()?;
        Ok((report, talk))
    }

    fn skips(&self) -> Result<Skips, String> {
        Skips::for_pair(self.server.name(), self.client.name(), self.variant.name)
    }
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn judge(skips: &Skips, report: Report, talk: &str, traffic: TrafficCheck) -> Result<Report, String> {
    let found = skips.differences(&report, traffic);
    if found.is_empty() { Ok(report) } else { Err(format!("{}\nserver:\n{talk}", found.join("\n"))) }
}
