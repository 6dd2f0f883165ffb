//! What is hashed is all there is, in one form.

use std::collections::HashSet;

use gantry_model::id::CallId;

use super::*;

fn block() -> Block {
    Block {
        gateway: 1,
        number: 7,
        previous: [3; 32],
        at_ms: 1_789_000_000_000,
        kind: BlockKind::Import,
        note: String::new(),
        count: 2,
        entries_hash: [4; 32],
        removed: Removed::default(),
        key_id: "key".to_owned(),
    }
}

#[test]
fn every_part_of_a_block_is_in_its_hash() {
    let place = Place {
        gateway: 1,
        block: 3,
        entry: 0,
    };
    let changes: [fn(&mut Block); 9] = [
        |block| block.gateway = 2,
        |block| block.number = 8,
        |block| block.previous[31] ^= 1,
        |block| block.at_ms += 1,
        |block| block.kind = BlockKind::Erasure,
        |block| block.note.push('x'),
        |block| block.count = 3,
        |block| block.entries_hash[0] ^= 1,
        |block| block.key_id.push('x'),
    ];
    let mut seen = HashSet::from([block().hash()]);
    for change in changes {
        let mut changed = block();
        change(&mut changed);
        assert!(seen.insert(changed.hash()));
    }
    let mut changed = block();
    changed.removed.insert(place);
    assert!(seen.insert(changed.hash()));
    for kind in BlockKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
    }
}

#[test]
fn entries_are_found_by_their_place_and_salts_do_not_count() {
    let mut entries = Entries::default();
    let entry = |n: u8| Entry {
        id: CallId::from_bits(u128::from(n)),
        digest: [n; 32],
        salt: [n; 16],
    };
    assert_eq!((entries.push(&entry(1)), entries.push(&entry(2))), (0, 1));
    let hash = entries.hash();
    assert!(entries.blank(1));
    assert!(!entries.blank(1), "once");
    assert_eq!(entries.hash(), hash);
    let blanked = Entry {
        salt: [0; 16],
        ..entry(2)
    };
    assert_eq!(entries.iter().collect::<Vec<_>>(), [entry(1), blanked]);
    assert_eq!(entries.get(2), None);
    let mut bytes = entries.as_bytes().to_vec();
    bytes[20] ^= 1;
    assert_ne!(Entries::from_bytes(bytes).hash(), hash);
}

#[test]
fn removed_entries_come_back_as_they_went() {
    let place = |block, entry| Place {
        gateway: 2,
        block,
        entry,
    };
    let places = [
        place(9, 5),
        place(9, 6),
        place(9, 7),
        place(9, 11),
        place(4, 0),
    ];
    let removed: Removed = places.into_iter().collect();
    let bytes = removed.to_bytes();
    assert_eq!(bytes.len(), 2 * 20 + 3 * 8);
    assert_eq!(Removed::from_bytes(&bytes), Some(removed));
    for cut in 1..bytes.len() {
        let whole = cut == 20 + 8;
        assert_eq!(Removed::from_bytes(&bytes[..cut]).is_some(), whole, "{cut}");
    }
    let mut huge = bytes;
    huge[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Removed::from_bytes(&huge), None);
}
