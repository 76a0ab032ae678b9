//! Entry point for fuzzing: a function over bytes that must return for any input.

use super::cos_naming::NameComponent;
use super::name;
use super::records::{self, NamingRecord};
use super::state::State;

/// Checks round trips. A record that can be read is written with its key, and is then read as an
/// equal change. A text that can be read as a name is written as an equal text. A component is read
/// from its text unchanged.
///
/// # Panics
/// If a property is violated.
pub fn naming_records(input: &[u8]) {
    let mut state = State::empty(0);
    let mut rest = input;
    while let [key_length, value_length, octets @ ..] = rest {
        let Some((key, octets)) = octets.split_at_checked(usize::from(*key_length)) else { break };
        let Some((value, octets)) = octets.split_at_checked(usize::from(*value_length)) else { break };
        rest = octets;
        if let Ok(NamingRecord::Change(change)) = records::decode(key, value) {
            let written = records::encode(&change);
            assert_eq!(written.key, key);
            let again = written.value.map(|value| records::decode(&written.key, &value));
            assert_eq!(again, Some(Ok(NamingRecord::Change(change.clone()))));
            let _ = state.replay(change);
        }
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(components) = name::to_name(text) {
        assert_eq!(name::to_string(&components).as_deref(), Ok(text));
        let url = name::to_url(":host", text);
        assert!(url.is_ok_and(|url| url.is_ascii()));
    }
    let component = NameComponent { id: text.to_owned(), kind: text.to_owned() };
    let shown = name::to_string(std::slice::from_ref(&component)).unwrap_or_default();
    assert_eq!(name::to_name(&shown), Ok(vec![component]));
}
