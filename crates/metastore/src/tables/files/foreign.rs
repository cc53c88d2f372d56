//! Numbers of puts that disks have and this store never gave: it was restored from an older backup.

use crate::database::Value;
use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::{ITEM_BITS, PutId};

/// Largest number of a put that is believed when a disk has it: half of all numbers. A broken disk or a hostile node
/// cannot use up more than that; a store that makes a thousand changes a second has the other half for eight years.
pub const FOREIGN_PUT_MAX: PutId = PutId((1 << (62 - ITEM_BITS)) - 1);
/// Maximum number of ranges. A further one extends the last range over the numbers between, whose files then stay too.
const RANGES_MAX: i64 = 100;

/// Numbers of puts from the first to the last one, both included, that the store does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignPuts {
    pub first: PutId,
    pub last: PutId,
}

impl ForeignPuts {
    pub fn contains(&self, put: PutId) -> bool {
        (self.first..=self.last).contains(&put)
    }
}

impl Metastore {
    /// Lets the numbers of puts go on behind `last`, and remembers those up to it that were never given. Returns them;
    /// None if `last` was given, or is above [`FOREIGN_PUT_MAX`].
    pub async fn pass_foreign_puts(&self, last: PutId) -> Result<Option<ForeignPuts>, StoreError> {
        if last > FOREIGN_PUT_MAX {
            return Ok(None);
        }
        self.in_transaction(async |db| {
            // The update locks the row, so that no number is given meanwhile.
            let given = "UPDATE sequences SET value = value WHERE name = 'file_put' RETURNING value";
            let rows = db.fetch(given, []).await?;
            let row = rows.first().ok_or_else(|| self.damaged("sequences.name", "file_put"))?;
            let first = PutId(self.get::<i64>(row, "value")? + 1);
            if last < first {
                return Ok(Ending::Rollback(None));
            }
            let raise = "UPDATE sequences SET value = $1 WHERE name = 'file_put' AND value < $1";
            db.execute(raise, [last.0.into()]).await?;
            let extend = "UPDATE foreign_file_puts SET last_put = $1 \
                 WHERE last_put = (SELECT max(last_put) FROM foreign_file_puts) \
                 AND (last_put = $2 OR (SELECT count(*) FROM foreign_file_puts) >= $3)";
            let values: [Value; 3] = [last.0.into(), (first.0 - 1).into(), RANGES_MAX.into()];
            if db.execute(extend, values).await? == 0 {
                let insert = "INSERT INTO foreign_file_puts (first_put, last_put) VALUES ($1, $2)";
                db.execute(insert, [first.0.into(), last.0.into()]).await?;
            }
            Ok(Ending::Commit(Some(ForeignPuts { first, last })))
        })
        .await
    }

    /// Returns the numbers of puts that disks may have and the store does not know.
    pub async fn foreign_puts(&self) -> Result<Vec<ForeignPuts>, StoreError> {
        let rows = self.rows("SELECT * FROM foreign_file_puts ORDER BY first_put", []).await?;
        let range = |row| {
            let (first, last) = (self.get(row, "first_put")?, self.get(row, "last_put")?);
            Ok(ForeignPuts { first: PutId(first), last: PutId(last) })
        };
        rows.iter().map(range).collect()
    }
}
