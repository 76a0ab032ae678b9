//! The identity of an entry in a table whose slots are reused.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl SlotId {
    pub(crate) const OCTETS: usize = 8;

    pub(crate) fn to_octets(self) -> [u8; Self::OCTETS] {
        ((u64::from(self.slot) << 32) | u64::from(self.generation)).to_be_bytes()
    }

    #[inline]
    pub(crate) fn from_octets(octets: [u8; Self::OCTETS]) -> Self {
        let [a, b, c, d, e, f, g, h] = octets;
        SlotId { slot: u32::from_be_bytes([a, b, c, d]), generation: u32::from_be_bytes([e, f, g, h]) }
    }
}
