//! The command `corelane ior`, which shows the content of references or makes references.

pub(crate) mod content;
mod json;
mod make;
mod text;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;

use clap::Command;
use corelane_wire::ior::ObjectUrl;
use corelane_wire::limits::Limits;
use serde_json::json;

use crate::arguments::flag;
use crate::text::{excerpt, json_line};
use crate::{DONE, NOT_DONE, arguments, input};

pub(crate) const USAGE: &str = "\
usage: corelane ior [--json] TEXT...
       corelane ior make [OPTION]... --address ADDRESS... --key TEXT

Shows the content of a reference: type, profiles with their addresses, object key and components. TEXT is IOR: and hexadecimal
digits, corbaloc: or corbaname:. With - the references are read from the standard input, one a line; with @FILE from a file.
Nothing is called. `corelane ior make --help` explains the second form.

  --json            print one JSON object a line

Exit status: 0 shown, 1 a reference is malformed, 2 wrong usage.
";

pub(crate) fn help() -> String {
    format!("{USAGE}\n{}", make::USAGE)
}

pub(crate) fn command() -> Command {
    let show = arguments::command("ior", USAGE).arg(flag("json")).arg(arguments::positionals("TEXT"));
    arguments::with_descriptions(show, USAGE).subcommand(make::command().about("make a reference"))
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let words: Vec<OsString> = arguments.collect();
    if words.first().is_some_and(|word| word == "make") {
        return make::run(words.into_iter().skip(1), out);
    }
    let parsed = match arguments::parse(command(), words) {
        Ok(parsed) => parsed,
        Err(refusal) => return arguments::print_refusal(refusal.reason(), USAGE, out),
    };
    let words = arguments::texts(&parsed, "TEXT");
    if words.is_empty() {
        return arguments::print_refusal(Some("no reference is given".to_owned()), USAGE, out);
    }
    let (is_json, mut status) = (parsed.get_flag("json"), DONE);
    for word in &words {
        let texts = match input::references(word) {
            Ok(texts) => texts,
            Err(error) => {
                status = NOT_DONE;
                let shown = if is_json { error_line(&error) } else { format!("error: {error}\n") };
                let _ = out.write_all(shown.as_bytes());
                continue;
            }
        };
        let mut shown: Vec<Result<String, String>> = texts.iter().map(|text| describe(text, is_json)).collect();
        if texts.is_empty() {
            shown.push(Err(format!("`{}` holds no reference", excerpt(word))));
        }
        for shown in shown {
            let shown = shown.unwrap_or_else(|error| {
                status = NOT_DONE;
                if is_json { error_line(&error) } else { format!("error: {error}\n") }
            });
            let _ = out.write_all(shown.as_bytes());
        }
    }
    status
}

/// Describes a reference in text or JSON. The error is a message for the user.
fn describe(text: &str, is_json: bool) -> Result<String, String> {
    let malformed = |error: &dyn Display| format!("`{}` is not a reference: {error}", excerpt(text));
    let url = ObjectUrl::parse(text, &Limits::DEFAULT).map_err(|error| malformed(&error))?;
    let shown = if is_json { json::describe(&url).map(|shown| json_line(&shown)) } else { text::describe(&url) };
    shown.map_err(|error| malformed(&error))
}

fn error_line(error: &str) -> String {
    json_line(&json!({ "schema": 1, "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WRONG_USAGE;
    use corelane_wire::codeset::{CharSet, CodeSetInfo};
    use corelane_wire::giop::Version;
    use corelane_wire::ior::{
        Ior, ProfileAddress, TaggedComponent, TaggedProfile, TaoEndpoint, orb_type_id, profile_tag,
    };
    use corelane_wire::rt::PriorityModelValue;

    fn shown(words: &[&str]) -> (u8, String) {
        let mut out = Vec::new();
        let status = run(words.iter().map(OsString::from), &mut out);
        (status, String::from_utf8(out).unwrap())
    }

    #[test]
    fn all_parts_of_a_reference_are_shown() {
        let model = PriorityModelValue { model: 0, server_priority: 7 }.encode().unwrap();
        let components = [
            TaggedComponent::orb_type(orb_type_id::OMNIORB).unwrap(),
            TaggedComponent::code_sets(&CodeSetInfo::for_native(CharSet::Utf8)).unwrap(),
            TaggedComponent::alternate_address("::1", 99).unwrap(),
            TaggedComponent::unix_transport("here", "/tmp/socket").unwrap(),
            TaggedComponent::policies(&[(40, model), (24, vec![0, 0, 0, 3]), (4711, vec![0xee; 3])]).unwrap(),
            TaggedComponent { tag: 0x7777, data: vec![0xab; 300] },
        ];
        let address = ProfileAddress::Inet { host: "192.0.2.1", port: 2809 };
        let iiop = TaggedProfile::encode(Version { major: 1, minor: 2 }, address, b"a key\x01", &components).unwrap();
        let unknown = TaggedProfile { tag: 0x1234_5678, data: vec![1, 2, 3] };
        let broken = TaggedProfile { tag: profile_tag::IIOP, data: vec![0] };
        let ior = Ior { type_id: "IDL:Some\x1b/Type:1.0".into(), profiles: vec![iiop, unknown, broken] };
        let (status, text) = shown(&[&ior.to_text().unwrap()]);
        assert_eq!(status, DONE);
        for part in [
            "IDL:Some\\u{1b}/Type:1.0",
            "IIOP",
            "version   1.2",
            "192.0.2.1:2809",
            "6 octets, a%20key%01",
            "61 20 6b 65 79 01",
            "omniORB (0x41545400)",
            "char UTF-8 (converts ISO 8859-1); wchar UTF-16",
            "alternate address: [::1]:99",
            "/tmp/socket on here",
            "0x00000002 policies\n    priority model (type 40): CLIENT_PROPAGATED, server priority 7\n",
            "    sync scope (type 24): SYNC_WITH_TARGET (3)\n    type 4711, 3 octets\n            0000  ee ee ee",
            "0x00007777 unknown",
            "and 44 more",
            "tag 0x12345678",
            "malformed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn profile_of_another_transport_is_shown_with_its_scheme() {
        let lanes = [("x", 5), ("\u{7}y", 9)];
        let lanes = lanes.map(|(address, priority)| TaoEndpoint { address: address.into(), port: None, priority });
        let components = [TaggedComponent::lane_endpoints(&lanes).unwrap()];
        let address = ProfileAddress::Other { scheme: "pipe", address: "x\u{7}" };
        let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"k", &components).unwrap();
        let broken = TaggedProfile { tag: profile_tag::OTHER_TRANSPORT, data: vec![0] };
        let ior = Ior { type_id: "IDL:X:1.0".into(), profiles: vec![profile, broken] }.to_text().unwrap();
        let (status, text) = shown(&[&ior]);
        for part in [
            "profile 1  Corelane, added transport\n",
            "  address   pipe:x\\u{7}\n",
            "  connect   pipe:x\\u{7}\n",
            "endpoints of lanes: x at priority 5, \\u{7}y at priority 9\n",
            "profile 2  Corelane, added transport\n  malformed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(status, DONE);
        let shown: serde_json::Value = serde_json::from_str(&shown(&["--json", &ior]).1).unwrap();
        let profile = &shown["profiles"][0];
        assert_eq!(profile["address"], serde_json::json!({ "scheme": "pipe", "address": "x\u{7}" }));
        assert_eq!(profile["connect"][0], serde_json::json!({ "transport": "pipe", "address": "x\u{7}" }));
        let lane = serde_json::json!({ "address": "x", "priority": 5 });
        assert_eq!(profile["components"][0]["value"][0], lane);
    }

    #[test]
    fn corbaloc_and_corbaname_are_shown() {
        let (status, text) = shown(&["corbaloc:iiop:1.2@host.example:12,:other/Key", "corbaloc:rir:/Thing"]);
        assert_eq!(status, DONE);
        assert!(text.contains("host.example:12") && text.contains("other:2809") && text.contains("Key"), "{text}");
        assert!(text.contains("initial reference of the ORB: Thing"), "{text}");
        let (_, text) = shown(&["corbaname::host#shop/orders"]);
        assert!(text.contains("shop/orders") && text.contains("NameService"), "{text}");
        assert!(shown(&[&Ior::NIL.to_text().unwrap()]).1.contains("nil"));
    }

    #[test]
    fn invalid_references_are_refused_and_the_others_still_shown() {
        let (status, text) = shown(&["IOR:00zz", "corbaloc::host/k"]);
        assert_eq!(status, NOT_DONE);
        assert!(text.contains("error: `IOR:00zz` is not a reference") && text.contains("host:2809"), "{text}");
        let (status, text) = shown(&["--json", "@/dev/null"]);
        assert_eq!(
            (status, text.as_str()),
            (NOT_DONE, "{\"error\":\"`@/dev/null` holds no reference\",\"schema\":1}\n")
        );
        let (status, text) = shown(&["--json", "corbaloc::h\u{100}/k"]);
        assert_eq!((status, text.contains("\"form\"")), (NOT_DONE, false), "{text}");
        assert_eq!(shown(&[]).0, WRONG_USAGE);
        assert_eq!(shown(&["--more"]).0, WRONG_USAGE);
        assert_eq!(shown(&["--help"]), (DONE, USAGE.to_owned()));
    }

    #[test]
    fn json_has_all_parts_in_one_line_per_reference() {
        let (status, text) = shown(&["--json", "corbaname::h:5#shop", "nonsense", "corbaloc:rir:/X"]);
        assert_eq!(status, NOT_DONE);
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!((&lines[0]["form"], &lines[0]["name"]), (&"corbaname".into(), &"shop".into()));
        let profile = &lines[0]["profiles"][0];
        assert_eq!((&profile["address"]["host"], &profile["address"]["port"]), (&"h".into(), &5.into()));
        assert_eq!((&profile["version"], &profile["key"]["text"]), (&"1.0".into(), &"NameService".into()));
        assert_eq!(lines[1]["error"], "`nonsense` is not a reference: expected IOR:, corbaloc: or corbaname:");
        assert_eq!(lines[2]["initial_reference"], "X");
    }

    #[test]
    fn components_of_other_orbs_have_names_and_values() {
        let encapsulated = |octets: &[u8]| [&[0, 0], octets].concat();
        let components = [
            TaggedComponent { tag: 20, data: encapsulated(&[0, 0x66, 0, 6, 0x13, 0x88]) },
            TaggedComponent { tag: 25, data: encapsulated(&[0, 0, 0, 0, 0, 2, b'x', 0]) },
            TaggedComponent { tag: 31, data: encapsulated(&[0, 3]) },
            TaggedComponent { tag: 38, data: vec![0, 2] },
            TaggedComponent { tag: 33, data: vec![1, 2, 3] },
            TaggedComponent { tag: 20, data: vec![0] },
        ];
        let address = ProfileAddress::Inet { host: "h", port: 0 };
        let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"k", &components).unwrap();
        let multiple = TaggedProfile { tag: 1, data: vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 26, 0, 0, 0, 1, 9] };
        let broken = TaggedProfile { tag: 1, data: vec![0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] };
        let ior = Ior { type_id: "IDL:X:1.0".into(), profiles: vec![profile, multiple, broken] }.to_text().unwrap();
        let (_, text) = shown(&[&ior]);
        for part in [
            "SSL: port 5000, supports integrity + confidentiality + trust in target + trust in client (0x66), requires",
            "Java code base: x\n",
            "OTS policy: 3\n",
            "RMI stream format: 2\n",
            "CSIv2 mechanisms\n            0000  01 02 03",
            "0x00000014 SSL\n            0000  00",
            "multiple components\n  component 0x0000001a transaction policy\n            0000  09",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let (_, text) = shown(&["--json", &ior]);
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        let components = &shown["profiles"][0]["components"];
        assert_eq!(
            (&components[0]["value"]["port"], &components[0]["value"]["supports"]),
            (&5000.into(), &0x66.into())
        );
        assert_eq!((&components[4]["value"], &components[4]["data"]), (&serde_json::Value::Null, &"010203".into()));
        assert_eq!(shown["profiles"][1]["components"][0]["name"], "transaction policy");
        assert!(shown["profiles"][2]["error"].is_string());
    }
}
