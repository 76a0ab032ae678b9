//! Code generated from the IDL compiler's test files compiles without warnings of rustc and clippy.

#![warn(elided_lifetimes_in_paths)]

include!(concat!(env!("OUT_DIR"), "/accepted/all.rs"));

pub mod public {
    //! Public items get warnings that private items do not get.
    corelane::include_idl!("lints");
}

mod private {
    corelane::include_idl!("lints");
}

#[test]
fn constants_have_their_values() {
    use every_type::every_type as all;
    assert_eq!((all::LIMIT, all::BIG, all::MASK, all::YES), (16, u64::MAX, 240, true));
    assert_eq!((all::GREETING, all::WIDE_GREETING, all::ONE_LETTER), ("hello \"world\" \n", "\u{4e2d}", 'x'));
    assert_eq!((all::FAVOURITE, all::HALF), (all::Colour::Green, 0.5));
    assert_eq!(private::lints::Numbers::Few(7, 1).discriminator(), 7);
}
