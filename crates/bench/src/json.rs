//! JSON text of flat records, one record per line.

use std::fmt::Write;

/// A JSON object to which members are added. The members keep the order of addition.
#[derive(Clone, Debug)]
pub struct JsonObject(String);

impl JsonObject {
    /// Creates an object without members.
    #[must_use]
    pub fn new() -> Self {
        JsonObject(String::from("{"))
    }

    /// Adds a member with a string.
    #[must_use]
    pub fn string(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        quote(&mut self.0, value);
        self
    }

    /// Adds a member with an integer.
    #[must_use]
    pub fn integer(mut self, name: &str, value: u64) -> Self {
        self.name(name);
        let _ = write!(self.0, "{value}");
        self
    }

    /// Adds a member with a number, rounded to three decimal places. A number that is not finite
    /// becomes null.
    #[must_use]
    pub fn number(mut self, name: &str, value: f64) -> Self {
        self.name(name);
        number(&mut self.0, value);
        self
    }

    /// Adds a member with true or false.
    #[must_use]
    pub fn boolean(mut self, name: &str, value: bool) -> Self {
        self.name(name);
        self.0.push_str(if value { "true" } else { "false" });
        self
    }

    /// Adds a member with a list of strings.
    #[must_use]
    pub fn strings<'t>(mut self, name: &str, values: impl IntoIterator<Item = &'t str>) -> Self {
        self.list(name, values, quote);
        self
    }

    /// Adds a member with a list of numbers, each with three decimal digits. A number that is not
    /// finite becomes null.
    #[must_use]
    pub fn numbers(mut self, name: &str, values: &[f64]) -> Self {
        self.list(name, values.iter().copied(), number);
        self
    }

    /// Adds a member with an object.
    #[must_use]
    pub fn object(mut self, name: &str, value: JsonObject) -> Self {
        self.name(name);
        self.0.push_str(&value.finish());
        self
    }

    /// Adds a member with a list of objects.
    #[must_use]
    pub fn objects(mut self, name: &str, values: Vec<JsonObject>) -> Self {
        self.list(name, values, |text, value| text.push_str(&value.finish()));
        self
    }

    /// Returns the JSON text, without a line end.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(&mut self.0, name);
        self.0.push(':');
    }

    fn list<T>(&mut self, name: &str, values: impl IntoIterator<Item = T>, add: impl Fn(&mut String, T)) {
        self.name(name);
        self.0.push('[');
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            add(&mut self.0, value);
        }
        self.0.push(']');
    }
}

impl Default for JsonObject {
    fn default() -> Self {
        Self::new()
    }
}

fn number(text: &mut String, value: f64) {
    if value.is_finite() {
        let _ = write!(text, "{value:.3}");
    } else {
        text.push_str("null");
    }
}

fn quote(text: &mut String, value: &str) {
    text.push_str(&serde_json::Value::from(value).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_text_is_valid_json() {
        let text = JsonObject::new()
            .string("a \"b\"", "line\nend\u{1}\\ \u{e9}")
            .integer("n", u64::MAX)
            .number("x", 1.0 / 3.0)
            .number("nothing", f64::NAN)
            .boolean("yes", true)
            .strings("words", ["one", "two"])
            .numbers("none", &[])
            .object("one", JsonObject::new().integer("z", 1))
            .objects("inner", vec![JsonObject::new(), JsonObject::new().number("y", 2.0)])
            .finish();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["a \"b\""], "line\nend\u{1}\\ \u{e9}");
        assert_eq!(parsed["n"], u64::MAX);
        assert_eq!(parsed["x"], 0.333);
        assert!(parsed["nothing"].is_null());
        assert_eq!(parsed["words"][1], "two");
        assert_eq!((&parsed["inner"][1]["y"], &parsed["one"]["z"]), (&2.0.into(), &1.into()));
        assert!(!text.contains('\n'));
    }
}
