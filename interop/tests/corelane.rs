//! The checks of the suite between Corelane and each of the other ORBs, and of Corelane with
//! itself. Wireshark's dissector checks the messages on the wire.

use std::path::Path;

use corelane_interop::client_server_run::{self, ExtraOptions, TrafficCheck};
use corelane_interop::peers::Orb::{self, Corelane, GlassFish, JacOrb, OmniOrb};
use corelane_interop::peers::Variant;

const LEAST: usize = 100;

fn prove(server: Orb, client: Orb, variant: Variant, traffic: TrafficCheck, extra: ExtraOptions<'_>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    match client_server_run::run_with(&folder, server, client, variant, traffic, extra) {
        Ok(report) => assert!(report.passed.len() >= LEAST, "only {} checks ran", report.passed.len()),
        Err(trouble) => panic!("{trouble}"),
    }
}

macro_rules! pairs {
    ($($name:ident: $server:ident serves $client:ident in $variant:ident;)*) => {
        $(#[test]
        fn $name() {
            prove($server, $client, Variant::$variant, TrafficCheck::Dissected, ExtraOptions::default());
        })*
    };
}

pairs! {
    corelane_serves_corelane: Corelane serves Corelane in GIOP_1_2;
    corelane_serves_omniorb: Corelane serves OmniOrb in GIOP_1_2;
    corelane_serves_jacorb: Corelane serves JacOrb in GIOP_1_2;
    omniorb_serves_corelane: OmniOrb serves Corelane in GIOP_1_2;
    jacorb_serves_corelane: JacOrb serves Corelane in GIOP_1_2;
    corelane_serves_glassfish: Corelane serves GlassFish in GIOP_1_2;
    glassfish_serves_corelane: GlassFish serves Corelane in GIOP_1_2;

    corelane_serves_corelane_in_1_1: Corelane serves Corelane in GIOP_1_1;
    corelane_serves_omniorb_in_1_1: Corelane serves OmniOrb in GIOP_1_1;
    corelane_serves_jacorb_in_1_1: Corelane serves JacOrb in GIOP_1_1;
    omniorb_serves_corelane_in_1_1: OmniOrb serves Corelane in GIOP_1_1;
    jacorb_serves_corelane_in_1_1: JacOrb serves Corelane in GIOP_1_1;
    corelane_serves_glassfish_in_1_1: Corelane serves GlassFish in GIOP_1_1;
    glassfish_serves_corelane_in_1_1: GlassFish serves Corelane in GIOP_1_1;

    corelane_serves_corelane_in_1_0: Corelane serves Corelane in GIOP_1_0;
    corelane_serves_omniorb_in_1_0: Corelane serves OmniOrb in GIOP_1_0;
    corelane_serves_jacorb_in_1_0: Corelane serves JacOrb in GIOP_1_0;
    omniorb_serves_corelane_in_1_0: OmniOrb serves Corelane in GIOP_1_0;
    jacorb_serves_corelane_in_1_0: JacOrb serves Corelane in GIOP_1_0;
    corelane_serves_glassfish_in_1_0: Corelane serves GlassFish in GIOP_1_0;
    glassfish_serves_corelane_in_1_0: GlassFish serves Corelane in GIOP_1_0;

    corelane_publishes_1_1_for_corelane: Corelane serves Corelane in PUBLISHED_1_1;
    corelane_publishes_1_1_for_omniorb: Corelane serves OmniOrb in PUBLISHED_1_1;
    corelane_publishes_1_1_for_jacorb: Corelane serves JacOrb in PUBLISHED_1_1;
    omniorb_publishes_1_1_for_corelane: OmniOrb serves Corelane in PUBLISHED_1_1;
    jacorb_publishes_1_1_for_corelane: JacOrb serves Corelane in PUBLISHED_1_1;

    corelane_publishes_1_0_for_corelane: Corelane serves Corelane in PUBLISHED_1_0;
    corelane_publishes_1_0_for_omniorb: Corelane serves OmniOrb in PUBLISHED_1_0;
    corelane_publishes_1_0_for_jacorb: Corelane serves JacOrb in PUBLISHED_1_0;
    omniorb_publishes_1_0_for_corelane: OmniOrb serves Corelane in PUBLISHED_1_0;
    jacorb_publishes_1_0_for_corelane: JacOrb serves Corelane in PUBLISHED_1_0;

    corelane_serves_corelane_in_latin1: Corelane serves Corelane in LATIN1;
    corelane_serves_omniorb_in_latin1: Corelane serves OmniOrb in LATIN1;
    corelane_serves_jacorb_in_latin1: Corelane serves JacOrb in LATIN1;
    omniorb_serves_corelane_in_latin1: OmniOrb serves Corelane in LATIN1;
    jacorb_serves_corelane_in_latin1: JacOrb serves Corelane in LATIN1;

    corelane_converts_latin1_for_omniorb: Corelane serves OmniOrb in LATIN1_STRINGS;
    corelane_converts_latin1_for_jacorb: Corelane serves JacOrb in LATIN1_STRINGS;
    omniorb_converts_latin1_for_corelane: OmniOrb serves Corelane in LATIN1_STRINGS;
    jacorb_converts_latin1_for_corelane: JacOrb serves Corelane in LATIN1_STRINGS;

    corelane_serves_corelane_in_unicode: Corelane serves Corelane in UNICODE;
    corelane_serves_omniorb_in_unicode: Corelane serves OmniOrb in UNICODE;
    corelane_serves_jacorb_in_unicode: Corelane serves JacOrb in UNICODE;
    omniorb_serves_corelane_in_unicode: OmniOrb serves Corelane in UNICODE;
    jacorb_serves_corelane_in_unicode: JacOrb serves Corelane in UNICODE;
}

const NOTHING: ExtraOptions<'_> = ExtraOptions { name: "", server: &[], client: &[], corbaloc: None };

const FRAGMENTS: ExtraOptions<'_> = ExtraOptions { name: "-fragments", server: &["--fragment", "256"], ..NOTHING };

#[test]
fn omniorb_reads_fragmented_replies_of_corelane() {
    prove(Corelane, OmniOrb, Variant::GIOP_1_2, TrafficCheck::Dissected, FRAGMENTS);
}

#[test]
fn jacorb_reads_fragmented_replies_of_corelane() {
    prove(Corelane, JacOrb, Variant::GIOP_1_2, TrafficCheck::Dissected, FRAGMENTS);
}

/// Corelane fragments its replies, because GlassFish refuses unfragmented messages above 256,000
/// octets.
#[test]
fn glassfish_reads_fragmented_replies_of_corelane_without_a_setting() {
    prove(Corelane, GlassFish, Variant::SMALL_MESSAGES, TrafficCheck::Dissected, FRAGMENTS);
}

const FRAGMENTED_REQUESTS: ExtraOptions<'_> =
    ExtraOptions { name: "-fragments", client: &["--fragment", "256"], ..NOTHING };

#[test]
fn omniorb_reads_fragmented_requests_of_corelane() {
    prove(OmniOrb, Corelane, Variant::GIOP_1_2, TrafficCheck::Dissected, FRAGMENTED_REQUESTS);
}

#[test]
fn jacorb_reads_fragmented_requests_of_corelane() {
    prove(JacOrb, Corelane, Variant::GIOP_1_2, TrafficCheck::Dissected, FRAGMENTED_REQUESTS);
}

#[test]
fn glassfish_reads_fragmented_requests_of_corelane_without_a_setting() {
    prove(GlassFish, Corelane, Variant::SMALL_MESSAGES, TrafficCheck::Dissected, FRAGMENTED_REQUESTS);
}

#[test]
fn two_corelane_programs_exchange_fragments() {
    let both =
        ExtraOptions { name: "-fragments", server: &["--fragment", "256"], client: &["--fragment", "1000"], ..NOTHING };
    prove(Corelane, Corelane, Variant::GIOP_1_2, TrafficCheck::Dissected, both);
}

/// Options for messages of ten million octets, which omniORB sends in fragments of its buffer size.
const LARGE: ExtraOptions<'_> =
    ExtraOptions { name: "-large", client: &["--big", "10000000", "--rounds", "2"], ..NOTHING };

#[test]
fn large_messages_pass_between_omniorb_and_corelane() {
    prove(Corelane, OmniOrb, Variant::GIOP_1_2, TrafficCheck::Dissected, LARGE);
    prove(OmniOrb, Corelane, Variant::GIOP_1_2, TrafficCheck::Dissected, LARGE);
}

#[test]
fn large_messages_pass_between_jacorb_and_corelane() {
    prove(Corelane, JacOrb, Variant::GIOP_1_2, TrafficCheck::Dissected, LARGE);
    prove(JacOrb, Corelane, Variant::GIOP_1_2, TrafficCheck::Dissected, LARGE);
}
