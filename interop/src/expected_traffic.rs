//! The GIOP versions and fragments that a run must have on the wire, because calls succeed even if
//! a program ignores an option.

use std::collections::BTreeSet;

use crate::capture::{CapturedMessage, Side};
use crate::peers::{Orb, Variant};
use crate::report::FailedCheck;

const LEAST_FRAGMENTS: usize = 50;

const HEADER: u32 = 12;

/// The types of messages whose version is checked: all except CancelRequest, CloseConnection and
/// MessageError.
const OF_CALLS: [u8; 5] = [REQUEST, 1, 3, 4, FRAGMENT];
const REQUEST: u8 = 0;
const FRAGMENT: u8 = 7;

/// The fragmentation that is expected of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedFragments {
    /// Any fragmentation. Programs of other ORBs have their own rules.
    Any,
    /// No fragments.
    None,
    /// At least 50 fragments, and messages of at most this many octets, including the header.
    UpTo(u32),
}

/// The expected GIOP versions and fragments of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTraffic {
    /// Minor version numbers of GIOP in requests, replies and fragments on connections that the
    /// client opened. Each must occur, and no other.
    pub call_versions: BTreeSet<u8>,
    /// Minor version number of GIOP in requests, replies and fragments on connections that the
    /// server opened to the client.
    pub callback_version: u8,
    /// Fragments of the server.
    pub server_fragments: ExpectedFragments,
    /// Fragments of the client.
    pub client_fragments: ExpectedFragments,
}

impl ExpectedTraffic {
    /// Derives the expectations from the variant and from the option `--fragment` of Corelane's
    /// programs.
    ///
    /// # Errors
    ///
    /// The option `--fragment` has no number.
    pub fn of_run(
        (server, server_options): (Orb, &[&str]),
        (client, client_options): (Orb, &[&str]),
        variant: Variant,
    ) -> Result<Self, String> {
        let calls = spoken(client, variant.client_minor, variant.server_minor);
        let callbacks = spoken(server, variant.server_minor, variant.client_minor);
        // Corelane sends no fragments below GIOP 1.2.
        let whole = calls < 2;
        Ok(Self {
            call_versions: BTreeSet::from([calls]),
            callback_version: callbacks,
            server_fragments: fragments(server, server_options, whole)?,
            client_fragments: fragments(client, client_options, whole)?,
        })
    }

    /// Returns a failed check for each expectation that is not met.
    pub fn failed_checks(&self, messages: &[CapturedMessage]) -> Vec<FailedCheck> {
        let versions = |is_callback: bool| -> BTreeSet<u8> {
            let counts = |m: &&CapturedMessage| m.is_callback == is_callback && OF_CALLS.contains(&m.message_type);
            messages.iter().filter(counts).map(|message| message.giop_minor).collect()
        };
        let mut failed = Vec::new();
        let mut fail = |check: &str, what: String| {
            failed.push(FailedCheck { check: check.to_owned(), line: format!("FAIL {check} {what}") });
        };
        let callbacks = BTreeSet::from([self.callback_version]);
        for (check, asked, seen) in
            [("wire-version", &self.call_versions, versions(false)), ("wire-version-back", &callbacks, versions(true))]
        {
            if *asked != seen {
                fail(check, format!("expected GIOP 1.x of {asked:?} got {seen:?}"));
            }
        }
        for (side, asked) in [(Side::Server, self.server_fragments), (Side::Client, self.client_fragments)] {
            if let Some(what) = fragments_differ(asked, messages.iter().filter(|message| message.from == side)) {
                fail("wire-fragments", format!("of the {side:?}: {what}"));
            }
        }
        failed
    }
}

fn spoken(caller: Orb, own: u8, published: u8) -> u8 {
    // JacORB's client uses the version of the reference, even if its own version is lower.
    if caller == Orb::JacOrb { published } else { published.min(own) }
}

fn fragments(orb: Orb, options: &[&str], whole: bool) -> Result<ExpectedFragments, String> {
    if orb != Orb::Corelane {
        return Ok(ExpectedFragments::Any);
    }
    let Some(at) = options.iter().position(|option| *option == "--fragment") else {
        return Ok(ExpectedFragments::None);
    };
    let size = options.get(at + 1).and_then(|size| size.parse().ok()).ok_or("--fragment needs a number")?;
    Ok(if whole { ExpectedFragments::None } else { ExpectedFragments::UpTo(size) })
}

fn fragments_differ<'m>(
    asked: ExpectedFragments,
    messages: impl Iterator<Item = &'m CapturedMessage>,
) -> Option<String> {
    let (mut count, mut largest) = (0, 0);
    for message in messages {
        count += usize::from(message.message_type == FRAGMENT);
        largest = largest.max(message.size + HEADER);
    }
    match asked {
        ExpectedFragments::UpTo(size) if count < LEAST_FRAGMENTS || largest > size => {
            Some(format!("expected messages of {size} octets got {count} fragments, and a message of {largest}"))
        }
        ExpectedFragments::None if count > 0 => Some(format!("expected no fragments got {count}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(from: Side, is_callback: bool, minor: u8, kind: u8, size: u32) -> CapturedMessage {
        CapturedMessage { from, is_callback, giop_minor: minor, message_type: kind, size }
    }

    fn checks(asked: &ExpectedTraffic, messages: &[CapturedMessage]) -> Vec<String> {
        asked.failed_checks(messages).into_iter().map(|failed| failed.check).collect()
    }

    #[test]
    fn unexpected_version_is_a_failed_check() {
        let corelane = (Orb::Corelane, &[][..]);
        let asked = ExpectedTraffic::of_run(corelane, corelane, Variant::GIOP_1_1).unwrap();
        let calls = |minor, back| {
            [message(Side::Client, false, minor, REQUEST, 9), message(Side::Server, true, back, REQUEST, 9)]
        };
        assert_eq!(checks(&asked, &calls(1, 1)), [""; 0]);
        assert_eq!(checks(&asked, &calls(2, 1)), ["wire-version"]);
        assert_eq!(checks(&asked, &calls(1, 2)), ["wire-version-back"]);
        assert_eq!(checks(&asked, &[]), ["wire-version", "wire-version-back"]);
        let jacorb = ExpectedTraffic::of_run(corelane, (Orb::JacOrb, &[]), Variant::GIOP_1_1).unwrap();
        assert_eq!(checks(&jacorb, &calls(2, 1)), [""; 0]);
    }

    #[test]
    fn messages_that_end_a_connection_may_have_another_version() {
        let asked = ExpectedTraffic::of_run((Orb::OmniOrb, &[]), (Orb::OmniOrb, &[]), Variant::GIOP_1_2).unwrap();
        let back = message(Side::Client, true, 2, 1, 9);
        assert_eq!(checks(&asked, &[message(Side::Client, false, 2, REQUEST, 9), back]), [""; 0]);
        let close = message(Side::Server, false, 0, 5, 0);
        assert_eq!(checks(&asked, &[message(Side::Client, false, 2, REQUEST, 9), back, close]), [""; 0]);
    }

    #[test]
    fn missing_too_large_and_unexpected_fragments_are_failed_checks() {
        let fragments = |size| {
            let mut all = vec![message(Side::Client, true, 2, 1, 9)];
            all.resize(LEAST_FRAGMENTS + 1, message(Side::Client, false, 2, FRAGMENT, size));
            all
        };
        let asked =
            |client| ExpectedTraffic::of_run((Orb::OmniOrb, &[]), (Orb::Corelane, client), Variant::GIOP_1_2).unwrap();
        assert_eq!(checks(&asked(&["--fragment", "256"]), &fragments(244)), [""; 0]);
        assert_eq!(checks(&asked(&["--fragment", "256"]), &fragments(245)), ["wire-fragments"]);
        assert_eq!(checks(&asked(&["--fragment", "256"]), &fragments(244)[..9]), ["wire-fragments"]);
        assert_eq!(checks(&asked(&[]), &fragments(244)), ["wire-fragments"]);
        assert!(
            ExpectedTraffic::of_run((Orb::Corelane, &["--fragment"]), (Orb::OmniOrb, &[]), Variant::GIOP_1_2).is_err()
        );
    }
}
