//! The fuzz target `orb_options`, which converts options of other ORBs as `corelane config import`
//! does.

use corelane_config::Configuration;

#[path = "../../crates/cli/src/config/orb_options/mod.rs"]
mod imported;

use imported::{ForeignOrb, ImportTarget, Imported, takes_value};

const MAX_SHOWN: usize = 60 * 4 + 3;

/// Converts a text. The first octet selects the ORB, the form of the text (a file, or words on
/// separate lines), and the reader of the result.
///
/// # Panics
///
/// If the result is not TOML or not the configuration of a program, if a message names a line that
/// the text does not have, or if a message has no reason or shows more of an option than 240 bytes
/// and an ellipsis.
pub fn orb_options(input: &[u8]) {
    let Some((settings, text)) = input.split_first() else { return };
    let orb = match settings % 3 {
        0 => None,
        1 => Some(ForeignOrb::OmniOrb),
        _ => Some(ForeignOrb::Tao),
    };
    let text = String::from_utf8_lossy(text);
    let target = if settings & 0x40 == 0 { ImportTarget::Commands } else { ImportTarget::Programs };
    let mut imported = Imported::new(target);
    let taken = if settings & 0x80 == 0 {
        imported.read_text(0, &text, orb)
    } else {
        let words: Vec<(usize, String)> =
            text.lines().enumerate().map(|(at, word)| (at + 1, word.to_owned())).collect();
        let _ = words.iter().filter(|(_, word)| takes_value(word)).count();
        imported.take_words(0, words, orb)
    };
    let lines = text.lines().count().max(1);
    if let Err(malformed) = taken {
        assert!((1..=lines).contains(&malformed.line) && malformed.text.len() <= MAX_SHOWN, "{malformed:?}");
        assert!(!malformed.reason.is_empty());
        return;
    }
    imported.finish();
    let tables = imported.to_toml();
    match target {
        ImportTarget::Commands => assert!(toml::de::DeTable::parse(&tables).is_ok(), "{tables}"),
        ImportTarget::Programs => {
            let read = Configuration::new().read_text("imported", &tables);
            let builder = read.and_then(|configuration| configuration.builder().map(drop));
            assert!(builder.is_ok(), "{builder:?}\n{tables}");
        }
    }
    for one in imported.left_out() {
        let is_in_text = one.place.source == 0 && (1..=lines).contains(&one.place.line);
        assert!(is_in_text && one.option.len() <= MAX_SHOWN && !one.reason.is_empty(), "{one:?}");
    }
}
