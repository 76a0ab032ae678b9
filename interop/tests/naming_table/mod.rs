//! The calls of interop/naming.table: each ORB's client makes them on each ORB's name server.

mod client;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use corelane::{Endpoint, Orb};
use corelane_interop::client_server_run::TrafficCheck;
use corelane_interop::jacorb_names::JacorbNames;
use corelane_interop::report::Report;
use corelane_interop::skips::Skips;
use corelane_interop::{peers, process};
use corelane_services::naming::cos_naming::BindingIterator;

use super::{OmniNames, Ours, Plain, folder, url};

const TABLE: &str = include_str!("../../naming.table");
const LIFE: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Corelane,
    OmniOrb,
    JacOrb,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Corelane => peers::Orb::Corelane.name(),
            Peer::OmniOrb => peers::Orb::OmniOrb.name(),
            Peer::JacOrb => peers::Orb::JacOrb.name(),
        }
    }

    /// Returns the command of the client; `None` for Corelane's client, which runs in this process.
    fn client(self) -> Option<Command> {
        let command = match self {
            Peer::Corelane => return None,
            Peer::OmniOrb => peers::omniorb_naming(&folder("peers")),
            Peer::JacOrb => peers::jacorb_naming(&folder("peers")),
        };
        Some(command.unwrap_or_else(|trouble| panic!("{trouble}")))
    }
}

/// Starts a name server and calls `run` with its URL.
fn with_server(server: Peer, name: &str, run: impl FnOnce(&str) -> Report) -> Report {
    match server {
        Peer::Corelane => run(&url(Ours::start().port)),
        Peer::OmniOrb => run(&url(OmniNames::start(name, &Orb::new().unwrap()).port)),
        Peer::JacOrb => run(JacorbNames::start(&folder("peers"), &folder(name)).reference()),
    }
}

/// Runs a client of each ORB on a new name server. Checks that the differences from the table are
/// those of interop/skips.
fn check(server: Peer) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    for key in ["One", "Two"] {
        let object = orb.root_poa().activate(&BindingIterator::servant(Plain)).unwrap();
        orb.bind_corbaloc_key(key, &object).unwrap();
    }
    orb.root_poa().manager().activate().unwrap();
    let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let mut found = Vec::new();
    for client in [Peer::Corelane, Peer::OmniOrb, Peer::JacOrb] {
        let name = format!("naming-{}-{}", server.name(), client.name());
        let report = with_server(server, &name, |root| {
            let objects = [
                ("root", root.to_owned()),
                ("one", format!("corbaloc::1.2@127.0.0.1:{port}/One")),
                ("two", format!("corbaloc::1.2@127.0.0.1:{port}/Two")),
                ("dead", "corbaloc::1.2@127.0.0.1:1/Dead".to_owned()),
            ];
            let Some(mut command) = client.client() else { return client::run(TABLE, &objects) };
            command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("naming.table"));
            command.args(objects.map(|(name, reference)| format!("{name}={reference}")));
            let finished = process::run(command, "client", &folder(&name), LIFE).unwrap();
            Report::parse(&finished.output).unwrap_or_else(|trouble| panic!("{trouble}\n{}", finished.output))
        });
        let checks = TABLE.lines().filter(|line| !line.starts_with('#') && line.contains(" -> ")).count();
        assert_eq!(report.passed.len() + report.failed.len(), checks, "{name}");
        let skips = Skips::for_pair(server.name(), client.name(), Skips::NAMING_VARIANT).unwrap();
        let differences = skips.differences(&report, TrafficCheck::Unchecked);
        found.extend(differences.into_iter().map(|difference| format!("{}: {difference}", client.name())));
    }
    assert!(found.is_empty(), "{} serves\n{}", server.name(), found.join("\n"));
}

#[test]
fn corelanes_name_server_gives_each_client_the_results_of_the_table() {
    check(Peer::Corelane);
}

#[test]
fn omninames_gives_each_client_the_results_of_the_table() {
    check(Peer::OmniOrb);
}

#[test]
fn jacorbs_name_server_gives_each_client_the_results_of_the_table() {
    check(Peer::JacOrb);
}
