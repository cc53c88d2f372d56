//! Users, their roles and tokens, and the audit of their calls. Times are nanoseconds since 1970.

use crate::database::{Row, Session};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use api::people::Role;
use rows::{AuditRow, Change, DATA_KEYS_MAX, DataKeyRow, TokenRow, UserRow};

impl Metastore {
    /// Returns all users, by name.
    pub async fn users(&self) -> Result<Vec<UserRow>, StoreError> {
        let rows = self.rows("SELECT * FROM users ORDER BY name", []).await?;
        rows.iter().map(|row| self.user_row(row)).collect()
    }

    pub async fn user(&self, name: &str) -> Result<Option<UserRow>, StoreError> {
        let rows = self.rows("SELECT * FROM users WHERE name = $1", [name.into()]).await?;
        rows.first().map(|row| self.user_row(row)).transpose()
    }

    fn user_row(&self, row: &Row) -> Result<UserRow, StoreError> {
        Ok(UserRow {
            name: self.get(row, "name")?,
            role: self.word(row, "role", Role::parse)?,
            created_ns: self.number(row, "created_ns")?,
            disabled_ns: self.number_or_none(row, "disabled_ns")?,
        })
    }

    /// Returns all tokens, including revoked and expired ones, oldest first.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let rows = self.rows("SELECT * FROM tokens ORDER BY created_ns, token", []).await?;
        rows.iter().map(|row| self.token_row(row)).collect()
    }

    /// Returns the token of a hash with its user, valid or not: the caller must check the times.
    pub async fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<(TokenRow, UserRow)>, StoreError> {
        let rows = self.rows("SELECT * FROM tokens WHERE hash = $1", [hash.as_slice().into()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let token = self.token_row(row)?;
        let user =
            self.user(&token.user).await?.ok_or_else(|| self.damaged("tokens.user_name", &token.user))?;
        Ok(Some((token, user)))
    }

    fn token_row(&self, row: &Row) -> Result<TokenRow, StoreError> {
        let hash: Vec<u8> = self.get(row, "hash")?;
        Ok(TokenRow {
            token: self.get(row, "token")?,
            user: self.get(row, "user_name")?,
            hash: <[u8; 32]>::try_from(hash).map_err(|hash| self.damaged("tokens.hash", hash.len()))?,
            created_ns: self.number(row, "created_ns")?,
            expires_ns: self.number_or_none(row, "expires_ns")?,
            revoked_ns: self.number_or_none(row, "revoked_ns")?,
        })
    }

    /// Returns the latest public keys of servers, newest first; at most [`DATA_KEYS_MAX`].
    pub async fn data_keys(&self) -> Result<Vec<DataKeyRow>, StoreError> {
        let key_row = |row: &Row| {
            let withdrawn_ns = self.number_or_none(row, "withdrawn_ns")?;
            Ok(DataKeyRow { public_key: self.get(row, "public_key")?, withdrawn_ns })
        };
        self.rows("SELECT * FROM data_keys ORDER BY data_key DESC", []).await?.iter().map(key_row).collect()
    }

    /// Returns the latest audit rows, oldest first.
    pub async fn audit(&self, count_max: u32) -> Result<Vec<AuditRow>, StoreError> {
        let statement =
            "SELECT * FROM (SELECT * FROM audit ORDER BY audit DESC LIMIT $1) AS latest ORDER BY audit";
        let audit_row = |row: &Row| {
            Ok(AuditRow {
                time_ns: self.number(row, "time_ns")?,
                user: self.get(row, "user_name")?,
                source: self.get(row, "source")?,
                action: self.get(row, "action")?,
                target: self.get(row, "target")?,
                allowed: self.number::<i64>(row, "allowed")? != 0,
                detail: self.get(row, "detail")?,
            })
        };
        self.rows(statement, [count_max.into()]).await?.iter().map(audit_row).collect()
    }
}

pub(crate) async fn apply_one(db: &mut Session<'_>, change: &Change) -> Result<(), ApplyError> {
    match change {
        Change::UserAdded { name, role, now_ns } => {
            let values = [name.as_str().into(), role.word().into(), (*now_ns).into()];
            db.execute("INSERT INTO users (name, role, created_ns) VALUES ($1, $2, $3)", values).await?;
        }
        Change::UserChanged { name, role, disabled_ns } => {
            let values = [name.as_str().into(), role.word().into(), (*disabled_ns).into()];
            db.execute("UPDATE users SET role = $2, disabled_ns = $3 WHERE name = $1", values).await?;
        }
        Change::TokenIssued { token } => {
            let values = [
                token.token.as_str().into(),
                token.user.as_str().into(),
                token.hash.as_slice().into(),
                token.created_ns.into(),
                token.expires_ns.into(),
                token.revoked_ns.into(),
            ];
            let statement = "INSERT INTO tokens (token, user_name, hash, created_ns, expires_ns, revoked_ns) \
                             VALUES ($1, $2, $3, $4, $5, $6)";
            db.execute(statement, values).await?;
        }
        Change::TokenRevoked { token, now_ns } => {
            // The first time is kept.
            let statement = "UPDATE tokens SET revoked_ns = $2 WHERE token = $1 AND revoked_ns IS NULL";
            db.execute(statement, [token.as_str().into(), (*now_ns).into()]).await?;
        }
        Change::DataKeyMade { public_key, withdraws_earlier, now_ns } => {
            if *withdraws_earlier {
                let statement = "UPDATE data_keys SET withdrawn_ns = $1 WHERE withdrawn_ns IS NULL";
                db.execute(statement, [(*now_ns).into()]).await?;
            }
            let statement = "INSERT INTO data_keys (data_key, public_key, made_ns) \
                             SELECT COALESCE(MAX(data_key), 0) + 1, $1, $2 FROM data_keys";
            db.execute(statement, [public_key.as_str().into(), (*now_ns).into()]).await?;
            let statement =
                "DELETE FROM data_keys WHERE data_key <= (SELECT MAX(data_key) FROM data_keys) - $1";
            db.execute(statement, [DATA_KEYS_MAX.into()]).await?;
        }
        other => unreachable!("{other:?} is no change of users"),
    }
    Ok(())
}
