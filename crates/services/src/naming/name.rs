//! Names as text: the string form and corbaname URLs (OMG Naming Service 1.3, sections 2.4 and
//! 2.5).
//!
//! `/` separates components, `.` separates id and kind.
//!
//! Invariant: each name with components has exactly one text. [`to_name`] accepts exactly the texts
//! that [`to_string`] produces.

use std::error::Error;
use std::fmt;

use corelane_wire::Limits;
use corelane_wire::ior::{Corbaloc, UrlError, escape_key, parse_object_name};

use super::cos_naming::NameComponent;

/// The error of a name without components, or of a text that does not have the form of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name has no components, or the text does not have the form of a name")
    }
}

impl Error for InvalidName {}

/// The reason why a corbaname URL cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidUrl {
    /// The address is not valid in a corbaname URL.
    Address,
    /// The text does not have the form of a name.
    Name,
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidUrl::Address => "the address is empty or malformed",
            InvalidUrl::Name => "the text does not have the form of a name",
        })
    }
}

impl Error for InvalidUrl {}

/// Returns the string form of a name.
///
/// # Errors
/// [`InvalidName`] for a name without components.
///
/// # Examples
/// ```
/// use corelane_services::naming::cos_naming::NameComponent;
/// use corelane_services::naming::name;
/// let component = NameComponent { id: "a.b".to_owned(), kind: "obj".to_owned() };
/// assert_eq!(name::to_string(&[component]).as_deref(), Ok(r"a\.b.obj"));
/// ```
pub fn to_string(name: &[NameComponent]) -> Result<String, InvalidName> {
    if name.is_empty() {
        return Err(InvalidName);
    }
    let mut text = String::new();
    for (index, component) in name.iter().enumerate() {
        if index > 0 {
            text.push('/');
        }
        push_escaped(&mut text, &component.id);
        if !component.kind.is_empty() || component.id.is_empty() {
            text.push('.');
            push_escaped(&mut text, &component.kind);
        }
    }
    Ok(text)
}

fn push_escaped(text: &mut String, field: &str) {
    for character in field.chars() {
        if is_special(character) {
            text.push('\\');
        }
        text.push(character);
    }
}

fn is_special(character: char) -> bool {
    matches!(character, '/' | '.' | '\\')
}

/// Returns the name that a text represents.
///
/// # Errors
/// [`InvalidName`] if the text or a component is empty, if a component has two unescaped dots, if a
/// dot follows an id without a kind after it, or if a backslash does not precede `/`, `.` or `\`.
///
/// # Examples
/// ```
/// use corelane_services::naming::name;
/// let name = name::to_name("shop/orders.obj").unwrap();
/// assert_eq!((name[0].id.as_str(), name[1].id.as_str(), name[1].kind.as_str()), ("shop", "orders", "obj"));
/// ```
pub fn to_name(text: &str) -> Result<Vec<NameComponent>, InvalidName> {
    let components = parse_object_name(text).ok_or(InvalidName)?;
    Ok(components.into_iter().map(|(id, kind)| NameComponent { id, kind }).collect())
}

/// Returns the corbaname URL of the name `text` in the context at `address`, such as `:host:2809`
/// or `:host/Key`. An empty text gives the URL of the context itself.
///
/// # Errors
/// [`InvalidUrl`] if the address or the text is malformed.
///
/// # Examples
/// ```
/// use corelane_services::naming::name;
/// assert_eq!(name::to_url(":host", "a b").as_deref(), Ok("corbaname::host#a%20b"));
/// ```
pub fn to_url(address: &str, text: &str) -> Result<String, InvalidUrl> {
    check_address(address)?;
    if text.is_empty() {
        return Ok(format!("corbaname:{address}"));
    }
    to_name(text).map_err(|InvalidName| InvalidUrl::Name)?;
    Ok(format!("corbaname:{address}#{}", escape_key(text.as_bytes())))
}

/// Checks the address part of a corbaname URL. Addresses with a protocol that Corelane does not
/// know are not parsed.
fn check_address(address: &str) -> Result<(), InvalidUrl> {
    let is_url_text = |character: char| character.is_ascii_graphic() && character != '#';
    if address.is_empty() || !address.chars().all(is_url_text) {
        return Err(InvalidUrl::Address);
    }
    match Corbaloc::parse(&format!("corbaloc:{address}"), &Limits::DEFAULT) {
        Ok(_) => return Ok(()),
        Err(UrlError::TooLong) => return Err(InvalidUrl::Address),
        Err(_) => {}
    }
    let (addresses, key) = address.split_once('/').unwrap_or((address, ""));
    // The client chooses the number of addresses and the size of the key, so each part is parsed
    // once.
    let is_key = Corbaloc::parse(&format!("corbaloc::h/{key}"), &Limits::DEFAULT).is_ok();
    if !is_key || addresses.split(',').count() > Limits::DEFAULT.max_profiles as usize {
        return Err(InvalidUrl::Address);
    }
    let is_valid = addresses.split(',').all(|address| match address.split_once(':') {
        Some((protocol, rest)) if !matches!(protocol, "" | "iiop" | "rir") => {
            !rest.is_empty() && protocol.chars().all(|character| character.is_ascii_alphanumeric())
        }
        Some(_) => Corbaloc::parse(&format!("corbaloc:{address}"), &Limits::DEFAULT).is_ok(),
        None => false,
    });
    if is_valid { Ok(()) } else { Err(InvalidUrl::Address) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(components: &[(&str, &str)]) -> Vec<NameComponent> {
        components.iter().map(|(id, kind)| NameComponent { id: (*id).into(), kind: (*kind).into() }).collect()
    }

    #[test]
    fn texts_of_the_specification_are_read_and_written() {
        for (text, components) in [
            ("a/b", &[("a", ""), ("b", "")][..]),
            ("a.k", &[("a", "k")]),
            (".k", &[("", "k")]),
            (".", &[("", "")]),
            ("./.", &[("", ""), ("", "")]),
            (r"a\.b.c", &[("a.b", "c")]),
            (r"a\/b/c.d/.e", &[("a/b", ""), ("c", "d"), ("", "e")]),
            (r"\\.\\", &[("\\", "\\")]),
            ("ä ö.ü", &[("ä ö", "ü")]),
        ] {
            assert_eq!(to_name(text), Ok(name(components)), "{text}");
            assert_eq!(to_string(&name(components)).as_deref(), Ok(text));
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in ["", "a.", "a//b", "/a", "a/", "a.b.c", "..", "a..b", r"\x", r"a\", "/", "a./b", r"a.\."] {
            let accepted = text == r"a.\.";
            assert_eq!(to_name(text).is_ok(), accepted, "{text}");
        }
        assert_eq!(to_string(&[]), Err(InvalidName));
    }

    #[test]
    fn urls_are_made_of_valid_addresses() {
        assert_eq!(to_url(":h:9999/My", r"a\.b/x:y é").as_deref(), Ok("corbaname::h:9999/My#a%5c.b/x:y%20%c3%a9"));
        assert_eq!(to_url("iiop:1.2@h,:g", "").as_deref(), Ok("corbaname:iiop:1.2@h,:g"));
        assert_eq!(to_url("atm:00002112,:h/a/b/c", "n").as_deref(), Ok("corbaname:atm:00002112,:h/a/b/c#n"));
        assert_eq!(to_url("rir:", "n").as_deref(), Ok("corbaname:rir:#n"));
        let addresses = |count: usize| format!("atm:0{}", ",:h".repeat(count - 1));
        assert!(to_url(&addresses(64), "n").is_ok());
        assert_eq!(to_url(&addresses(65), "n"), Err(InvalidUrl::Address));
        for address in ["atm:0/%zz", "", "h", ":h:x", ":h#", ": h", ",", "iiop:1.x@h", "a-b:c"] {
            assert_eq!(to_url(address, "n"), Err(InvalidUrl::Address), "{address}");
        }
        assert_eq!(to_url(":h", "a//b"), Err(InvalidUrl::Name));
        assert_eq!(to_url(&format!(":{}", "h".repeat(20 << 20)), "n"), Err(InvalidUrl::Address));
    }

    proptest! {
        #[test]
        fn each_name_survives_its_text(fields in prop::collection::vec(("[ab./\\\\ä ]{0,4}", "[ab./\\\\ä ]{0,4}"), 1..5)) {
            let fields: Vec<(&str, &str)> = fields.iter().map(|(id, kind)| (id.as_str(), kind.as_str())).collect();
            let text = to_string(&name(&fields)).unwrap();
            prop_assert_eq!(to_name(&text), Ok(name(&fields)));
        }

        #[test]
        fn each_accepted_text_survives_its_name(text in "[ab./\\\\]{0,8}") {
            if let Ok(name) = to_name(&text) {
                prop_assert_eq!(to_string(&name), Ok(text));
            }
        }
    }
}
