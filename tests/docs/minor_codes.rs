//! docs/minor-codes.md and the code have the same minor codes, with the same descriptions.

use corelane::SystemException;
use corelane::{Completion, SystemExceptionKind as Kind};
use corelane_wire::CdrError;
use corelane_wire::exception::minor;

fn row(kind: Kind, code: u32, name: &str, text: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!("`{name}`") };
    format!("| {code:#010x} | {} | {name} | {} |", kind.name(), text.trim())
}

fn rows() -> Vec<String> {
    let listed = minor::OMG_CODES.iter().map(|(kind, code, name, text)| row(*kind, *code, name, text));
    let own =
        CdrError::ALL.iter().filter(|error| error.minor() & minor::VENDOR_MASK == minor::CORELANE & minor::VENDOR_MASK);
    let marshalling = own.map(|error| row(error.kind(), error.minor(), "", error.text()));
    let further = corelane::minor::CORELANE_CODES.iter().map(|(kind, code, name, text)| {
        let text = text.trim().split_once(": ").map_or(text.trim(), |(_, text)| text);
        row(*kind, *code, name, text)
    });
    listed.chain(marshalling).chain(further).collect()
}

#[test]
fn table_of_minor_codes_matches_the_code() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/minor-codes.md")).unwrap();
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| 0x")).collect();
    let rows = rows();
    assert!(found == rows, "docs/minor-codes.md does not have these rows:\n{}", rows.join("\n"));
}

#[test]
fn an_exception_shows_its_minor_code_in_hexadecimal_with_its_name() {
    let shown = |kind, code| SystemException::new(kind, code, Completion::No).to_string();
    assert_eq!(
        shown(Kind::Transient, minor::transient::DISCARDED),
        "TRANSIENT minor 0x4f4d0001 (DISCARDED), COMPLETED_NO"
    );
    assert_eq!(
        shown(Kind::ImpLimit, corelane::minor::MESSAGE_TOO_LARGE),
        "IMP_LIMIT minor 0x434c4e82 (MESSAGE_TOO_LARGE), COMPLETED_NO"
    );
    let truncated = shown(Kind::Marshal, CdrError::Truncated.minor());
    assert_eq!(truncated, "MARSHAL minor 0x434c4e01 (the octets end before the value does), COMPLETED_NO");
    let said = SystemException::from(CdrError::Truncated).to_string();
    assert_eq!(said, "MARSHAL minor 0x434c4e01, COMPLETED_NO: the octets end before the value does", "once is enough");
    assert_eq!(shown(Kind::Transient, 0x4154_0002), "TRANSIENT minor 0x41540002, COMPLETED_NO");
    assert_eq!(shown(Kind::Unknown, 0), "UNKNOWN, COMPLETED_NO");
    for (kind, code, name, _) in minor::OMG_CODES {
        assert!(shown(*kind, *code).contains(&format!("({name})")), "{name}");
    }
}
