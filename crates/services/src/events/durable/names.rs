//! The names of durable channels and of their consumers.

const MAX_NAME_BYTES: usize = 64;

/// Returns true if the name has 1 to 64 ASCII letters, digits and characters `-_.`.
pub(in crate::events) fn is_name(name: &str) -> bool {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)
}
