//! References as text for readers.

use std::fmt::Write as _;

use corelane_wire::Limits;
use corelane_wire::cdr::{CdrError, Decoder, TaggedList};
use corelane_wire::ior::{Corbaloc, Corbaname, Ior, ObjectUrl, ProfileAddress, TaggedProfile, escape_key, profile_tag};

use super::content::{Content, content, endpoint_text, host_text, is_known, profile_name};
use crate::text::printable;

const MAX_SHOWN: usize = 256;

/// Describes a reference. Fails if a `corbaloc:` cannot be encoded as a reference.
pub(super) fn describe(url: &ObjectUrl) -> Result<String, CdrError> {
    let mut text = String::new();
    match url {
        ObjectUrl::Ior(ior) => reference(&mut text, ior),
        ObjectUrl::Corbaloc(corbaloc) => location(&mut text, corbaloc)?,
        ObjectUrl::Corbaname(Corbaname { context, name }) => {
            let name = name.as_deref().map_or("(the context itself)".to_owned(), printable);
            let _ = writeln!(text, "name      {name}");
            location(&mut text, context)?;
        }
        _ => text.push_str("a reference of a form that this version does not show\n"),
    }
    Ok(text)
}

fn location(text: &mut String, corbaloc: &Corbaloc) -> Result<(), CdrError> {
    if let Some(name) = corbaloc.initial_reference() {
        let _ = writeln!(text, "initial reference of the ORB: {}", escape_key(name));
        return Ok(());
    }
    reference(text, &corbaloc.to_ior()?);
    Ok(())
}

fn reference(text: &mut String, ior: &Ior) {
    if ior.is_nil() {
        text.push_str("nil\n");
        return;
    }
    let id = if ior.type_id.is_empty() {
        "(none: only the object can report its type)".to_owned()
    } else {
        printable(&ior.type_id)
    };
    let _ = writeln!(text, "type      {id}");
    for (index, profile) in ior.profiles.iter().enumerate() {
        let _ = writeln!(text, "profile {}  {}", index + 1, profile_name(profile.tag));
        profile_body(text, profile);
    }
}

fn profile_body(text: &mut String, tagged: &TaggedProfile) {
    if tagged.tag == profile_tag::MULTIPLE_COMPONENTS
        && let Ok(mut decoder) = Decoder::for_encapsulation(&tagged.data)
        && let Ok(list) = TaggedList::parse(&mut decoder, Limits::DEFAULT.max_tagged_components)
    {
        components(text, tagged.tag, list);
        return;
    }
    let profile = match tagged.parse() {
        Ok(profile) => profile,
        Err(error) if is_known(tagged.tag) => {
            let _ = writeln!(text, "  malformed: {error}\n{}", octets(&tagged.data));
            return;
        }
        Err(_) => {
            let _ = writeln!(text, "  {} octets of unknown content\n{}", tagged.data.len(), octets(&tagged.data));
            return;
        }
    };
    let _ = writeln!(text, "  version   {}.{}", profile.version.major, profile.version.minor);
    let address = match profile.address {
        ProfileAddress::Inet { host, port } => format!("{}:{port}", host_text(host)),
        ProfileAddress::Unix { host, path } => format!("{} on {}", printable(path), printable(host)),
        ProfileAddress::SharedMemory { host, path } => format!("{} on {}", printable(path), printable(host)),
        ProfileAddress::Other { scheme, address } => printable(&format!("{scheme}:{address}")),
        ProfileAddress::Uiop { path } => printable(path),
    };
    let _ = writeln!(text, "  address   {address}");
    for endpoint in profile.endpoints() {
        let _ = writeln!(text, "  connect   {}", endpoint_text(&endpoint));
    }
    let key = profile.object_key;
    let _ = writeln!(text, "  key       {} octets, {}\n{}", key.len(), printable(&escape_key(key)), octets(key));
    components(text, tagged.tag, profile.components);
}

fn components(text: &mut String, profile: u32, list: TaggedList<'_>) {
    for (tag, data) in list {
        let Content { name, text: shown, details, .. } = content(profile, tag, data);
        let shown_or_not = shown.as_deref().filter(|text| !text.is_empty());
        let colon = shown_or_not.map_or(String::new(), |shown| format!(": {shown}"));
        let _ = writeln!(text, "  component {tag:#010x} {name}{colon}");
        if shown.is_none() {
            let _ = writeln!(text, "{}", octets(data));
        }
        for (line, unknown) in details {
            let _ = writeln!(text, "    {line}");
            if let Some(unknown) = unknown {
                let _ = writeln!(text, "{}", octets(unknown));
            }
        }
    }
}

fn octets(data: &[u8]) -> String {
    let mut text = String::new();
    for (index, row) in data[..data.len().min(MAX_SHOWN)].chunks(16).enumerate() {
        let hex: Vec<String> = row.iter().map(|octet| format!("{octet:02x}")).collect();
        let letters: String =
            row.iter().map(|&octet| if octet.is_ascii_graphic() { char::from(octet) } else { '.' }).collect();
        let _ = writeln!(text, "            {:04x}  {:<47}  {letters}", index * 16, hex.join(" "));
    }
    if data.len() > MAX_SHOWN {
        let _ = writeln!(text, "            and {} more", data.len() - MAX_SHOWN);
    }
    text.pop();
    text
}
