//! The list of known failures, each with its reason. A listed check that does not fail is an error.

use crate::client_server_run::TrafficCheck;
use crate::report::Report;

const LIST: &str = include_str!("../skips");

/// The prefix of an entry with an option for the client.
const OPTION: &str = "--";

/// The prefix of an entry with a preference for the dissector.
const PREFERENCE: &str = "dissector ";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Skip {
    server: String,
    client: String,
    variant: String,
    check: String,
    reason: String,
}

/// The lines of the list that apply to one server and client in one variant.
#[derive(Debug)]
pub struct Skips {
    all: Vec<Skip>,
}

impl Skips {
    /// The variant of the runs of values.idl, which `*` does not match.
    pub const VALUES_VARIANT: &str = "values";
    /// The variant of the calls of naming.table, which `*` does not match.
    pub const NAMING_VARIANT: &str = "naming";

    /// Returns the lines of interop/skips for this server, client and variant.
    ///
    /// # Errors
    ///
    /// A line of the list is malformed.
    pub fn for_pair(server: &str, client: &str, variant: &str) -> Result<Self, String> {
        Self::read(LIST, server, client, variant)
    }

    fn read(list: &str, server: &str, client: &str, variant: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for line in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let skip = parse(line)?;
            let is_other_suite = [Self::VALUES_VARIANT, Self::NAMING_VARIANT].contains(&variant);
            let varies = matches(&skip.variant, variant) && (!is_other_suite || skip.variant == variant);
            let concerns = matches(&skip.server, server) && matches(&skip.client, client) && varies;
            if concerns {
                all.push(skip);
            }
        }
        Ok(Self { all })
    }

    /// Returns the options with which the client leaves out checks, without duplicates.
    pub fn client_options(&self) -> Vec<&str> {
        let mut options: Vec<&str> = self.all.iter().map(|skip| skip.check.as_str()).collect();
        options.retain(|check| check.starts_with(OPTION));
        options.sort_unstable();
        options.dedup();
        options.iter().flat_map(|option| option.split(' ')).collect()
    }

    /// Returns the preferences of the dissector, `NAME:VALUE`.
    pub fn dissector_preferences(&self) -> Vec<&str> {
        self.all.iter().filter_map(|skip| skip.check.strip_prefix(PREFERENCE)).collect()
    }

    /// Returns the failures that the list does not have, and the listed checks that did not fail.
    pub fn differences(&self, report: &Report, traffic: TrafficCheck) -> Vec<String> {
        let counts = |skip: &&Skip| {
            ![OPTION, PREFERENCE].iter().any(|start| skip.check.starts_with(start))
                && (traffic == TrafficCheck::Dissected || !skip.check.starts_with("malformed-"))
        };
        let checks: Vec<&Skip> = self.all.iter().filter(counts).collect();
        let unforeseen = report
            .failed
            .iter()
            .filter(|failed| !checks.iter().any(|skip| matches(&skip.check, &failed.check)))
            .map(|failed| failed.line.clone());
        let stale = checks
            .iter()
            .filter(|skip| !report.failed.iter().any(|failed| matches(&skip.check, &failed.check)))
            .map(|skip| format!("`{}` is in interop/skips and did not fail: {}", skip.check, skip.reason));
        unforeseen.chain(stale).collect()
    }
}

fn parse(line: &str) -> Result<Skip, String> {
    let columns: Vec<&str> = line.splitn(5, '|').map(str::trim).collect();
    let [server, client, variant, check, reason] = columns.as_slice() else {
        return Err(format!("interop/skips: five columns are expected in `{line}`"));
    };
    if columns.iter().any(|column| column.is_empty()) {
        return Err(format!("interop/skips: a column is empty in `{line}`"));
    }
    let owned = |text: &str| text.to_owned();
    Ok(Skip {
        server: owned(server),
        client: owned(client),
        variant: owned(variant),
        check: owned(check),
        reason: owned(reason),
    })
}

fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == text, |start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::FailedCheck;

    const SOME: &str = "# a comment\n\na | b | * | big * | too big\n* | b | v | --no-wide | no wide\n* | * | v | --no-wide | the same\n* | b | v | --skip one | x\n\
     * | b | v | --skip two | x\na | c | v | echo_x | other client\n";

    fn failing(checks: &[&str]) -> Report {
        let failed = |check: &&str| FailedCheck { check: (*check).into(), line: format!("FAIL {check} got nothing") };
        Report { passed: Vec::new(), failed: checks.iter().map(failed).collect() }
    }

    #[test]
    fn only_lines_of_the_pair_count() {
        let skips = Skips::read(SOME, "a", "b", "v").unwrap();
        assert_eq!(skips.all.len(), 5);
        assert_eq!(skips.client_options(), ["--no-wide", "--skip", "one", "--skip", "two"]);
        assert!(skips.differences(&failing(&["big octets 10"]), TrafficCheck::Unchecked).is_empty());
    }

    #[test]
    fn star_does_not_match_the_variant_of_another_suite() {
        let skips = Skips::read("a | b | * | x | y\na | b | values | z | y", "a", "b", Skips::VALUES_VARIANT).unwrap();
        assert_eq!((skips.all.len(), skips.all[0].check.as_str()), (1, "z"));
    }

    #[test]
    fn unlisted_failure_and_listed_check_that_passes_are_reported() {
        let skips = Skips::read(SOME, "a", "b", "v").unwrap();
        assert_eq!(
            skips.differences(&failing(&["big octets 10", "echo_y"]), TrafficCheck::Unchecked),
            ["FAIL echo_y got nothing"]
        );
        let stale = skips.differences(&failing(&[]), TrafficCheck::Unchecked);
        assert!(stale.len() == 1 && stale[0].contains("did not fail: too big"), "{stale:?}");
    }

    #[test]
    fn malformed_messages_count_only_in_dissected_traffic() {
        let skips = Skips::read("a | b | v | malformed-Fragment | the dissector errs", "a", "b", "v").unwrap();
        assert!(skips.differences(&failing(&[]), TrafficCheck::Unchecked).is_empty());
        assert_eq!(skips.differences(&failing(&[]), TrafficCheck::Dissected).len(), 1);
        assert!(skips.differences(&failing(&["malformed-Fragment"]), TrafficCheck::Dissected).is_empty());
        assert_eq!(skips.differences(&failing(&["malformed-Reply"]), TrafficCheck::Dissected).len(), 2);
    }

    #[test]
    fn preferences_are_for_the_dissector_only() {
        let skips = Skips::read("a | b | v | dissector giop.x:FALSE | it errs", "a", "b", "v").unwrap();
        assert_eq!((skips.client_options(), skips.dissector_preferences()), (vec![], vec!["giop.x:FALSE"]));
        assert!(skips.differences(&failing(&[]), TrafficCheck::Dissected).is_empty());
    }

    #[test]
    fn line_without_a_reason_is_refused() {
        assert!(Skips::read("a | b | v | echo_x", "a", "b", "v").is_err());
        assert!(Skips::read("a | b | v | echo_x |", "a", "b", "v").is_err());
    }

    #[test]
    fn list_of_the_repository_can_be_read() {
        Skips::for_pair("none", "none", "none").unwrap();
    }
}
