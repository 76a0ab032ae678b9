//! Names of objects in a naming service as text (OMG Naming Service 1.3, section 2.4).
//!
//! `/` separates components, `.` separates id and kind. `\` in front of `/`, `.` or `\` makes that
//! character a part of the id or kind.

/// Parses a stringified name into its components, each with its id and kind. The component `.` has
/// an empty id and an empty kind. Returns `None` if the text or a component is empty, a component
/// has a second dot, the dot after an id ends the component, or a backslash is misplaced.
///
/// # Examples
/// ```
/// use corelane_wire::ior::parse_object_name;
/// let name = parse_object_name("shop/orders.obj").unwrap();
/// assert_eq!(name, [("shop".to_owned(), String::new()), ("orders".to_owned(), "obj".to_owned())]);
/// ```
#[must_use]
pub fn parse_object_name(text: &str) -> Option<Vec<(String, String)>> {
    let mut name = Vec::new();
    let mut id = String::new();
    let mut kind: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '/' => name.push(component(std::mem::take(&mut id), kind.take())?),
            '.' if kind.is_some() => return None,
            '.' => kind = Some(String::new()),
            character => {
                let literal = match character {
                    '\\' => characters.next().filter(|next| matches!(next, '/' | '.' | '\\'))?,
                    other => other,
                };
                kind.as_mut().unwrap_or(&mut id).push(literal);
            }
        }
    }
    name.push(component(id, kind)?);
    Some(name)
}

/// Returns the component; `None` for an empty text, and for an id with a needless dot. `kind` is
/// `None` if the text has no dot.
fn component(id: String, kind: Option<String>) -> Option<(String, String)> {
    let has_needless_dot = kind.as_ref().is_some_and(String::is_empty) && !id.is_empty();
    let is_empty = kind.is_none() && id.is_empty();
    (!has_needless_dot && !is_empty).then(|| (id, kind.unwrap_or_default()))
}
