//! The peers against each other. A failure is a fault of the peers or of their test programs.

use std::path::Path;

use corelane_interop::client_server_run::{self, TrafficCheck};
use corelane_interop::peers::Orb::{self, JacOrb, OmniOrb};
use corelane_interop::peers::Variant;

const LEAST: usize = 100;

fn prove(server: Orb, client: Orb, variant: Variant, traffic: TrafficCheck) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    match client_server_run::run(&folder, server, client, variant, traffic) {
        Ok(report) => assert!(report.passed.len() >= LEAST, "only {} checks ran", report.passed.len()),
        Err(trouble) => panic!("{trouble}"),
    }
}

macro_rules! pairs {
    ($($name:ident: $server:ident serves $client:ident in $variant:ident;)*) => {
        $(#[test]
        fn $name() {
            prove($server, $client, Variant::$variant, TrafficCheck::Unchecked);
        })*
    };
}

#[test]
fn dissector_accepts_messages_between_omniorb_programs() {
    prove(OmniOrb, OmniOrb, Variant::GIOP_1_2, TrafficCheck::Dissected);
}

#[test]
fn dissector_accepts_messages_between_jacorb_and_omniorb() {
    prove(JacOrb, OmniOrb, Variant::GIOP_1_2, TrafficCheck::Dissected);
}

pairs! {
    omniorb_serves_omniorb: OmniOrb serves OmniOrb in GIOP_1_2;
    omniorb_serves_jacorb: OmniOrb serves JacOrb in GIOP_1_2;
    jacorb_serves_omniorb: JacOrb serves OmniOrb in GIOP_1_2;
    jacorb_serves_jacorb: JacOrb serves JacOrb in GIOP_1_2;

    omniorb_serves_omniorb_in_1_1: OmniOrb serves OmniOrb in GIOP_1_1;
    omniorb_serves_jacorb_in_1_1: OmniOrb serves JacOrb in GIOP_1_1;
    jacorb_serves_omniorb_in_1_1: JacOrb serves OmniOrb in GIOP_1_1;
    jacorb_serves_jacorb_in_1_1: JacOrb serves JacOrb in GIOP_1_1;

    omniorb_serves_omniorb_in_1_0: OmniOrb serves OmniOrb in GIOP_1_0;
    omniorb_serves_jacorb_in_1_0: OmniOrb serves JacOrb in GIOP_1_0;
    jacorb_serves_omniorb_in_1_0: JacOrb serves OmniOrb in GIOP_1_0;
    jacorb_serves_jacorb_in_1_0: JacOrb serves JacOrb in GIOP_1_0;

    omniorb_publishes_1_1_for_jacorb: OmniOrb serves JacOrb in PUBLISHED_1_1;
    jacorb_publishes_1_1_for_omniorb: JacOrb serves OmniOrb in PUBLISHED_1_1;
    omniorb_publishes_1_0_for_jacorb: OmniOrb serves JacOrb in PUBLISHED_1_0;
    jacorb_publishes_1_0_for_omniorb: JacOrb serves OmniOrb in PUBLISHED_1_0;

    omniorb_serves_jacorb_in_latin1: OmniOrb serves JacOrb in LATIN1;
    jacorb_serves_omniorb_in_latin1: JacOrb serves OmniOrb in LATIN1;
    omniorb_serves_jacorb_in_unicode: OmniOrb serves JacOrb in UNICODE;
    jacorb_serves_omniorb_in_unicode: JacOrb serves OmniOrb in UNICODE;
}
