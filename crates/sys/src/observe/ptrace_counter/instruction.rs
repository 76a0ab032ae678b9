//! A decoder of x86-64 instructions that recognises only atomic instructions and system calls.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionKind {
    /// Every other instruction, including ordinary loads and stores.
    Plain,
    /// An instruction with a LOCK prefix, a full fence, or an exchange with memory (which locks
    /// without a prefix).
    Atomic,
    /// The instruction `SYSCALL`.
    SystemCall,
}

pub(super) const MAX_INSTRUCTION_BYTES: usize = 15;

impl InstructionKind {
    /// Decodes the instruction at the beginning of `octets`, and ignores the bytes after its end
    /// (Intel SDM volume 2, 2.1 and 2.2).
    pub(super) fn decode(octets: &[u8]) -> InstructionKind {
        let is_prefix = |octet: &u8| matches!(octet, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
        let prefixes = octets.iter().take_while(|octet| is_prefix(octet)).count();
        let (prefixes, rest) = octets.split_at(prefixes);
        if prefixes.contains(&0xf0) {
            return InstructionKind::Atomic;
        }
        let rest = match rest {
            [0x40..=0x4f, rest @ ..] => rest,
            rest => rest,
        };
        match rest {
            [0x0f, 0x05, ..] => InstructionKind::SystemCall,
            // XCHG; the two highest bits of the operand byte tell if one operand is memory.
            [0x86 | 0x87, operands, ..] if *operands < 0xc0 => InstructionKind::Atomic,
            // MFENCE; with prefixes these bytes are other instructions.
            [0x0f, 0xae, 0xf0..=0xf7, ..] if !prefixes.iter().any(|octet| matches!(octet, 0x66 | 0xf2 | 0xf3)) => {
                InstructionKind::Atomic
            }
            _ => InstructionKind::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_instructions_are_atomic_wherever_their_prefix_stands() {
        for octets in [
            // lock xadd %rax,(%rdi); lock incl (%rax); lock cmpxchg %ecx,%fs:(%rdx), prefixes in
            // both orders; data16 lock xadd
            &[0xf0, 0x48, 0x0f, 0xc1, 0x07][..],
            &[0xf0, 0xff, 0x00],
            &[0x64, 0xf0, 0x0f, 0xb1, 0x0a],
            &[0xf0, 0x64, 0x0f, 0xb1, 0x0a],
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],
            // lock orl $0,(%rsp), which GCC uses as a fence
            &[0xf0, 0x83, 0x0c, 0x24, 0x00],
        ] {
            assert_eq!(InstructionKind::decode(octets), InstructionKind::Atomic, "{octets:x?}");
        }
    }

    #[test]
    fn an_exchange_is_atomic_with_memory_only() {
        // xchg %al,(%rdi); xchg %rax,(%rdi); xchg %r8,0x10(%r9)
        for octets in [&[0x86, 0x07][..], &[0x48, 0x87, 0x07], &[0x4d, 0x87, 0x41, 0x10]] {
            assert_eq!(InstructionKind::decode(octets), InstructionKind::Atomic, "{octets:x?}");
        }
        // xchg %rax,%rbx; xchg %al,%bl; xchg %ax,%ax, which does nothing
        for octets in [&[0x48, 0x87, 0xd8][..], &[0x86, 0xd8], &[0x66, 0x90]] {
            assert_eq!(InstructionKind::decode(octets), InstructionKind::Plain, "{octets:x?}");
        }
    }

    #[test]
    fn fences_and_system_calls_are_recognised() {
        assert_eq!(InstructionKind::decode(&[0x0f, 0xae, 0xf0]), InstructionKind::Atomic);
        // lfence, sfence, umonitor, tpause, fxsave
        for octets in [
            &[0x0f, 0xae, 0xe8][..],
            &[0x0f, 0xae, 0xf8],
            &[0xf3, 0x0f, 0xae, 0xf0],
            &[0x66, 0x0f, 0xae, 0xf1],
            &[0x0f, 0xae, 0x00],
        ] {
            assert_eq!(InstructionKind::decode(octets), InstructionKind::Plain, "{octets:x?}");
        }
        assert_eq!(InstructionKind::decode(&[0x0f, 0x05, 0xf0]), InstructionKind::SystemCall);
    }

    #[test]
    fn operands_and_following_bytes_do_not_matter() {
        // ret, then a LOCK prefix; mov $0xf0,%al; xadd without LOCK; vmovdqu; rep movsb
        for octets in [
            &[0xc3, 0xf0, 0xff, 0x00][..],
            &[0xb0, 0xf0],
            &[0x48, 0x0f, 0xc1, 0x07],
            &[0xc5, 0xfe, 0x6f, 0x06],
            &[0xf3, 0xa4, 0xf0],
        ] {
            assert_eq!(InstructionKind::decode(octets), InstructionKind::Plain, "{octets:x?}");
        }
        assert_eq!(InstructionKind::decode(&[]), InstructionKind::Plain);
        assert_eq!(InstructionKind::decode(&[0xf3; MAX_INSTRUCTION_BYTES]), InstructionKind::Plain);
        assert_eq!(InstructionKind::decode(&[0x87]), InstructionKind::Plain);
    }
}
