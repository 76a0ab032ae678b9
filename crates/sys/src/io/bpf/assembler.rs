//! An assembler for eBPF (RFC 9669): instructions with names, labels for jumps, and symbols for
//! maps.

use std::fmt;

/// A register of the eBPF machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Register {
    /// Result of a call and of the program.
    R0 = 0,
    /// First argument of a call; the context when the program begins. Calls destroy R1 to R5.
    R1,
    /// Second argument of a call.
    R2,
    /// Third argument of a call.
    R3,
    /// Fourth argument of a call.
    R4,
    /// Fifth argument of a call.
    R5,
    /// A call preserves this register.
    R6,
    /// A call preserves this register.
    R7,
    /// A call preserves this register.
    R8,
    /// A call preserves this register.
    R9,
    /// Address of the end of the program's stack, which has 512 bytes. The register is read-only.
    R10,
}

impl Register {
    /// All registers, in the order of their numbers.
    pub const ALL: [Self; 11] =
        [Self::R0, Self::R1, Self::R2, Self::R3, Self::R4, Self::R5, Self::R6, Self::R7, Self::R8, Self::R9, Self::R10];

    /// Returns the register with this number; `None` for a number above 10.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The second operand of an instruction: a register, or a constant that is sign-extended to 64
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Register(Register),
    /// A constant of 32 bits.
    Immediate(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Self {
        Self::Immediate(constant)
    }
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 1 byte.
    Byte,
    /// 2 bytes.
    Half,
    /// 4 bytes.
    Word,
    /// 8 bytes.
    Double,
}

impl Width {
    /// Returns the width in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
            Self::Double => 0x18,
        }
    }
}

/// An arithmetic operation on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arithmetic {
    /// Sum, modulo 2^64.
    Add = 0x00,
    /// Difference, modulo 2^64.
    Subtract = 0x10,
    /// Product, modulo 2^64.
    Multiply = 0x20,
    /// Bitwise or.
    Or = 0x40,
    /// Bitwise and.
    And = 0x50,
    /// Shift to the left; the count is taken modulo 64.
    ShiftLeft = 0x60,
    /// Shift to the right, filled with zeros; the count is taken modulo 64.
    ShiftRight = 0x70,
    /// Bitwise exclusive or.
    Xor = 0xa0,
}

/// Condition of a jump. Comparisons are unsigned and on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// The operands are equal.
    Equal = 0x10,
    /// The left operand is greater.
    Greater = 0x20,
    /// The left operand is greater or equal.
    GreaterOrEqual = 0x30,
    /// A bit is set in both operands.
    AnyBit = 0x40,
    /// The operands differ.
    NotEqual = 0x50,
    /// The left operand is less.
    Less = 0xa0,
    /// The left operand is less or equal.
    LessOrEqual = 0xb0,
}

/// A function of the kernel that a BPF program may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: the address of the value, or 0 if the key has no entry.
    MapLookup = 1,
    /// `bpf_ktime_get_ns()`: nanoseconds of the monotonic clock.
    MonotonicTime = 5,
    /// `bpf_redirect_map(map, index, flags)`: `XDP_REDIRECT`, or the low bits of `flags` if the map
    /// has no entry at `index`.
    RedirectMap = 51,
    /// `bpf_xdp_get_buff_len(context)`: the number of bytes of the whole frame, including bytes
    /// outside the frame's linear part. Linux 5.18 and later.
    XdpFrameLength = 188,
}

/// One instruction, 64 bits in the kernel's layout.
///
/// ```text
/// bits  0..8    opcode
///       8..12   destination register
///      12..16   source register
///      16..32   offset, signed
///      32..64   constant, signed
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Class, operation and kind of operand.
    pub opcode: u8,
    /// Number of the destination register.
    pub destination: u8,
    /// Number of the source register. Some opcodes use this field as a constant that selects a
    /// variant of the instruction, such as [`opcode::MAP_DESCRIPTOR`].
    pub source: u8,
    /// Memory access: offset in bytes from the base register. Jump: distance of the target in
    /// instructions, counted from the next instruction.
    pub offset: i16,
    /// Constant operand, or the number of the called helper.
    pub immediate: i32,
}

/// Parts of an [`Instruction`]'s opcode: masks, and values under these masks (RFC 9669, section 3).
pub mod opcode {
    /// Mask of the instruction class.
    pub const CLASS_MASK: u8 = 0x07;
    /// Class: load of a constant of 64 bits (two instructions).
    pub const CLASS_LOAD_IMMEDIATE: u8 = 0x00;
    /// Class: load from memory into a register.
    pub const CLASS_LOAD: u8 = 0x01;
    /// Class: store of a constant into memory.
    pub const CLASS_STORE_IMMEDIATE: u8 = 0x02;
    /// Class: store of a register into memory.
    pub const CLASS_STORE: u8 = 0x03;
    /// Class: arithmetic on 32 bits, byte swaps included.
    pub const CLASS_ARITHMETIC_32: u8 = 0x04;
    /// Class: jumps, calls and exit; comparisons on 64 bits.
    pub const CLASS_JUMP: u8 = 0x05;
    /// Class: arithmetic on 64 bits.
    pub const CLASS_ARITHMETIC: u8 = 0x07;
    /// Bit: the second operand is a register.
    pub const SOURCE_REGISTER: u8 = 0x08;
    /// Mask of the width of a memory access.
    pub const WIDTH_MASK: u8 = 0x18;
    /// Mask of the addressing mode of a memory access.
    pub const MODE_MASK: u8 = 0xe0;
    /// Mode: register and offset.
    pub const MODE_MEMORY: u8 = 0x60;
    /// Mode: atomic operation at register and offset. The constant 0 selects the addition.
    pub const MODE_ATOMIC: u8 = 0xc0;
    /// Mask of the operation of arithmetic and jumps.
    pub const OPERATION_MASK: u8 = 0xf0;
    /// Arithmetic operation: copy.
    pub const ARITHMETIC_MOVE: u8 = 0xb0;
    /// Arithmetic operation: byte swap.
    pub const ARITHMETIC_SWAP: u8 = 0xd0;
    /// Jump operation: always.
    pub const JUMP_ALWAYS: u8 = 0x00;
    /// Jump operation: call of a helper.
    pub const JUMP_CALL: u8 = 0x80;
    /// Jump operation: end of the program.
    pub const JUMP_EXIT: u8 = 0x90;
    /// Source of a [`CLASS_LOAD_IMMEDIATE`] whose constant is the descriptor of a map.
    pub const MAP_DESCRIPTOR: u8 = 1;
}

impl Instruction {
    /// Encodes the instruction in the kernel's layout and in this machine's byte order.
    #[must_use]
    pub const fn encode(self) -> u64 {
        let registers = if cfg!(target_endian = "little") {
            self.source << 4 | self.destination & 0xf
        } else {
            self.destination << 4 | self.source & 0xf
        };
        let [offset_0, offset_1] = self.offset.to_ne_bytes();
        let [constant_0, constant_1, constant_2, constant_3] = self.immediate.to_ne_bytes();
        u64::from_ne_bytes([self.opcode, registers, offset_0, offset_1, constant_0, constant_1, constant_2, constant_3])
    }
}

/// A map that a program uses: its index in the argument `maps` of [`load`](super::load).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapSymbol(pub usize);

/// A label: a position in the program to which jumps lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// An assembled BPF program. Its instructions refer to maps by [`MapSymbol`], and not yet by
/// descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
    maps: Vec<(usize, MapSymbol)>,
}

impl Program {
    /// Returns the instructions in their order. The load of a map takes the places of two.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns the map that the instruction with this index loads; `None` if it loads no map.
    #[must_use]
    pub fn map_loaded_at(&self, place: usize) -> Option<MapSymbol> {
        self.maps.iter().find(|(at, _)| *at == place).map(|(_, map)| *map)
    }

    /// Returns the number of maps that [`load`](super::load) needs: the highest [`MapSymbol`] plus
    /// one, or 0 without maps.
    #[must_use]
    pub fn map_count(&self) -> usize {
        self.maps.iter().map(|(_, map)| map.0.saturating_add(1)).max().unwrap_or(0)
    }

    /// Encodes the instructions as the kernel reads them. `descriptor` returns the descriptor of
    /// each map.
    ///
    /// # Errors
    /// The first map for which `descriptor` returns `None`.
    pub fn encode(&self, descriptor: impl Fn(MapSymbol) -> Option<i32>) -> Result<Vec<u64>, MapSymbol> {
        let mut linked = self.instructions.clone();
        for &(place, map) in &self.maps {
            let Some(instruction) = linked.get_mut(place) else { continue };
            instruction.immediate = descriptor(map).ok_or(map)?;
        }
        Ok(linked.into_iter().map(Instruction::encode).collect())
    }
}

/// Reason why a program cannot be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssembleError {
    /// A jump leads to a label that is not bound.
    UnboundLabel(Label),
    /// A label is bound twice.
    LabelBoundTwice(Label),
    /// The distance of the jump at the instruction with this index does not fit into 16 bits.
    JumpTooLong(usize),
}

impl fmt::Display for AssembleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnboundLabel(Label(label)) => write!(f, "label {label} is not bound to an instruction"),
            Self::LabelBoundTwice(Label(label)) => write!(f, "label {label} is bound twice"),
            Self::JumpTooLong(place) => write!(f, "the jump at instruction {place} is too long"),
        }
    }
}

impl std::error::Error for AssembleError {}

/// Builder of a [`Program`].
///
/// # Examples
/// ```
/// use corelane_sys::bpf::{Assembler, Condition, Register::*, Width};
///
/// // An XDP program that passes the frames of receive queue 0 and drops all others.
/// let mut asm = Assembler::new();
/// let drop = asm.label();
/// asm.load(Width::Word, R2, R1, 16);
/// asm.jump_if(Condition::NotEqual, R2, 0, drop);
/// asm.set(R0, 2).exit();
/// asm.bind(drop).set(R0, 1).exit();
/// assert_eq!(asm.finish().unwrap().instructions().len(), 6);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    program: Program,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
    bound_twice: Option<Label>,
}

impl Assembler {
    /// Creates an assembler without instructions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a label. [`bind`](Self::bind) binds it to an instruction.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub fn bind(&mut self, label: Label) -> &mut Self {
        let next = self.program.instructions.len();
        match self.labels.get_mut(label.0) {
            Some(place @ None) => *place = Some(next),
            _ => self.bound_twice = Some(label),
        }
        self
    }

    /// Copies a register or a sign-extended constant into `destination`.
    pub fn set(&mut self, destination: Register, value: impl Into<Operand>) -> &mut Self {
        self.binary(opcode::CLASS_ARITHMETIC | opcode::ARITHMETIC_MOVE, destination, value.into(), 0)
    }

    /// Applies `operation` to `destination` and `value`, and stores the result in `destination`.
    pub fn compute(&mut self, operation: Arithmetic, destination: Register, value: impl Into<Operand>) -> &mut Self {
        self.binary(opcode::CLASS_ARITHMETIC | operation as u8, destination, value.into(), 0)
    }

    /// Converts the low 16 bits of `register` between network order and the machine's order, and
    /// clears the other bits.
    pub fn swap_network_order_16(&mut self, register: Register) -> &mut Self {
        let code = opcode::CLASS_ARITHMETIC_32 | opcode::ARITHMETIC_SWAP | opcode::SOURCE_REGISTER;
        self.push(code, register as u8, 0, 0, 16)
    }

    /// Loads `width` bytes at address `base + offset`, zero-extended.
    pub fn load(&mut self, width: Width, destination: Register, base: Register, offset: i16) -> &mut Self {
        let code = opcode::CLASS_LOAD | opcode::MODE_MEMORY | width.code();
        self.push(code, destination as u8, base as u8, offset, 0)
    }

    /// Stores the low `width` bytes of a register, or a constant, at address `base + offset`.
    pub fn store(&mut self, width: Width, base: Register, offset: i16, value: impl Into<Operand>) -> &mut Self {
        let mode = opcode::MODE_MEMORY | width.code();
        match value.into() {
            Operand::Register(source) => self.push(opcode::CLASS_STORE | mode, base as u8, source as u8, offset, 0),
            Operand::Immediate(constant) => {
                self.push(opcode::CLASS_STORE_IMMEDIATE | mode, base as u8, 0, offset, constant)
            }
        }
    }

    /// Adds a register to the 8 bytes at address `base + offset`, in one step for all processors.
    pub fn add_atomically(&mut self, base: Register, offset: i16, addend: Register) -> &mut Self {
        let code = opcode::CLASS_STORE | opcode::MODE_ATOMIC | Width::Double.code();
        self.push(code, base as u8, addend as u8, offset, 0)
    }

    /// Loads the address of a map, as an argument of a later [`call`](Self::call).
    pub fn load_map(&mut self, destination: Register, map: MapSymbol) -> &mut Self {
        self.program.maps.push((self.program.instructions.len(), map));
        let code = opcode::CLASS_LOAD_IMMEDIATE | Width::Double.code();
        self.push(code, destination as u8, opcode::MAP_DESCRIPTOR, 0, 0);
        self.push(0, 0, 0, 0, 0)
    }

    /// Jumps to `to` if `left` and `right` satisfy `condition`.
    pub fn jump_if(&mut self, condition: Condition, left: Register, right: impl Into<Operand>, to: Label) -> &mut Self {
        self.jumps.push((self.program.instructions.len(), to));
        self.binary(opcode::CLASS_JUMP | condition as u8, left, right.into(), 0)
    }

    /// Jumps to `to` in every case.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.program.instructions.len(), to));
        self.push(opcode::CLASS_JUMP | opcode::JUMP_ALWAYS, 0, 0, 0, 0)
    }

    /// Calls a function of the kernel. The call destroys R1 to R5 and leaves its result in R0.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(opcode::CLASS_JUMP | opcode::JUMP_CALL, 0, 0, 0, helper as i32)
    }

    /// Ends the program with R0 as its result.
    pub fn exit(&mut self) -> &mut Self {
        self.push(opcode::CLASS_JUMP | opcode::JUMP_EXIT, 0, 0, 0, 0)
    }

    /// Resolves the labels and returns the program.
    ///
    /// # Errors
    /// [`AssembleError`] for a label that is not bound or bound twice, and for a jump that is too
    /// long.
    pub fn finish(mut self) -> Result<Program, AssembleError> {
        if let Some(label) = self.bound_twice {
            return Err(AssembleError::LabelBoundTwice(label));
        }
        for (place, label) in self.jumps {
            let target = self.labels.get(label.0).copied().flatten().ok_or(AssembleError::UnboundLabel(label))?;
            let distance = i64::try_from(target).unwrap_or(i64::MAX) - i64::try_from(place).unwrap_or(i64::MAX) - 1;
            let offset = i16::try_from(distance).map_err(|_| AssembleError::JumpTooLong(place))?;
            if let Some(instruction) = self.program.instructions.get_mut(place) {
                instruction.offset = offset;
            }
        }
        Ok(self.program)
    }

    fn binary(&mut self, code: u8, destination: Register, value: Operand, offset: i16) -> &mut Self {
        match value {
            Operand::Register(source) => {
                self.push(code | opcode::SOURCE_REGISTER, destination as u8, source as u8, offset, 0)
            }
            Operand::Immediate(constant) => self.push(code, destination as u8, 0, offset, constant),
        }
    }

    fn push(&mut self, opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> &mut Self {
        self.program.instructions.push(Instruction { opcode, destination, source, offset, immediate });
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Register::{R0, R1, R2, R10};
    use super::*;

    #[test]
    fn instructions_have_the_encoding_of_the_standard() {
        let mut asm = Assembler::new();
        asm.set(R0, 2).set(R1, R2).compute(Arithmetic::Add, R1, -8);
        asm.load(Width::Half, R2, R1, 12).store(Width::Word, R10, -4, R2).store(Width::Double, R10, -16, 7);
        asm.swap_network_order_16(R2).add_atomically(R1, 8, R2).call(Helper::MapLookup).exit();
        let words = asm.finish().unwrap().encode(|_| None).unwrap();
        // Bytes as `llvm-objdump -d` shows them: opcode, registers, offset, constant.
        let expected: [[u8; 8]; 10] = [
            [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
            [0xbf, 0x21, 0, 0, 0, 0, 0, 0],
            [0x07, 0x01, 0, 0, 0xf8, 0xff, 0xff, 0xff],
            [0x69, 0x12, 12, 0, 0, 0, 0, 0],
            [0x63, 0x2a, 0xfc, 0xff, 0, 0, 0, 0],
            [0x7a, 0x0a, 0xf0, 0xff, 7, 0, 0, 0],
            [0xdc, 0x02, 0, 0, 16, 0, 0, 0],
            [0xdb, 0x21, 8, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 1, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        if cfg!(target_endian = "little") {
            let bytes: Vec<[u8; 8]> = words.into_iter().map(u64::to_le_bytes).collect();
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn jumps_lead_forwards_and_backwards() {
        let mut asm = Assembler::new();
        let (start, end) = (asm.label(), asm.label());
        asm.bind(start).jump_if(Condition::Greater, R1, R2, end).jump(start).bind(end).exit();
        let program = asm.finish().unwrap();
        let offsets: Vec<i16> = program.instructions().iter().map(|instruction| instruction.offset).collect();
        assert_eq!(offsets, [1, -2, 0]);
    }

    #[test]
    fn labels_without_place_or_with_two_are_refused() {
        let mut asm = Assembler::new();
        let label = asm.label();
        asm.jump(label);
        assert_eq!(asm.clone().finish(), Err(AssembleError::UnboundLabel(label)));
        asm.bind(label).bind(label);
        assert_eq!(asm.finish(), Err(AssembleError::LabelBoundTwice(label)));
    }

    #[test]
    fn too_long_jump_is_refused() {
        let length = |fill: usize| {
            let mut asm = Assembler::new();
            let end = asm.label();
            asm.jump(end);
            (0..fill).for_each(|_| {
                asm.set(R0, 0);
            });
            asm.bind(end).exit();
            asm.finish().map(|program| program.instructions().len())
        };
        assert_eq!(length(32_767), Ok(32_769));
        assert_eq!(length(32_768), Err(AssembleError::JumpTooLong(0)));
    }

    #[test]
    fn maps_get_their_descriptors_when_the_program_is_encoded() {
        let mut asm = Assembler::new();
        asm.load_map(R1, MapSymbol(2)).load_map(R2, MapSymbol(0)).exit();
        let program = asm.finish().unwrap();
        assert_eq!(
            (program.map_count(), program.map_loaded_at(0), program.map_loaded_at(1)),
            (3, Some(MapSymbol(2)), None)
        );
        assert_eq!(program.encode(|map| (map.0 == 2).then_some(7)), Err(MapSymbol(0)));
        let words = program.encode(|map| i32::try_from(map.0 + 5).ok()).unwrap();
        assert_eq!(words.len(), 5);
        let load = Instruction { opcode: 0x18, destination: 1, source: 1, offset: 0, immediate: 7 };
        assert_eq!(words.first(), Some(&load.encode()));
        assert_eq!(words.get(2), Some(&Instruction { destination: 2, immediate: 5, ..load }.encode()));
    }
}
