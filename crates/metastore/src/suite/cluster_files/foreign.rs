//! Tests of the numbers of puts that a store does not know.

use crate::{FOREIGN_PUT_MAX, ForeignPuts, Metastore};
use ids::PutId;

pub(super) async fn numbers_of_disks_are_passed(store: &Metastore) {
    let next = store.next_put_number().await.unwrap().0;
    let range = |first, last| ForeignPuts { first: PutId(first), last: PutId(last) };
    let pass = async |last: i64| store.pass_foreign_puts(PutId(last)).await.unwrap();
    // A number that was given is no foreign one.
    assert_eq!(pass(next - 1).await, None);
    assert_eq!(store.foreign_puts().await.unwrap(), []);
    assert_eq!(pass(next + 4).await, Some(range(next, next + 4)));
    assert_eq!(pass(next + 4).await, None);
    assert_eq!(store.reserve_put_id().await.unwrap(), PutId(next + 5));
    // Ranges that touch are one.
    assert_eq!(pass(next + 7).await, Some(range(next + 6, next + 7)));
    assert_eq!(pass(next + 9).await, Some(range(next + 8, next + 9)));
    assert_eq!(pass(next + 1).await, None);
    let all = [range(next, next + 4), range(next + 6, next + 9)];
    assert_eq!(store.foreign_puts().await.unwrap(), all);
    assert!(all[0].contains(PutId(next + 4)) && !all[0].contains(PutId(next + 5)));
    // A number that nobody can have reached is not believed.
    assert_eq!(pass(FOREIGN_PUT_MAX.0 + 1).await, None);
    assert_eq!(store.next_put_number().await.unwrap(), PutId(next + 10));
    // The number of ranges is bounded.
    let mut last = next + 10;
    for _ in 0..105 {
        store.reserve_put_id().await.unwrap();
        last += 2;
        pass(last).await.unwrap();
    }
    let all = store.foreign_puts().await.unwrap();
    assert_eq!((all.len(), all[99].last), (100, PutId(last)));
    assert_eq!(store.next_put_number().await.unwrap(), PutId(last + 1));
}
