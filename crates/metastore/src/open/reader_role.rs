//! The PostgreSQL role for statements of the console.

use crate::StoreError;
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;
use std::path::Path;

/// Creates the role if it is missing, and lets it read the views. A database user without the right to create roles can
/// still serve jobs: the console reports the missing role.
pub(crate) async fn reader_role(connection: &mut PgConnection, path: &Path) -> Result<(), StoreError> {
    // Only one of several starting servers may create it: all databases share roles.
    let statements = ["DO $$ BEGIN \
           IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'sailfish_reader') THEN \
             CREATE ROLE sailfish_reader NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT; \
           END IF; \
           IF NOT pg_has_role(current_user, 'sailfish_reader', 'MEMBER') THEN \
             EXECUTE format('GRANT sailfish_reader TO %I', current_user); \
           END IF; \
           GRANT USAGE ON SCHEMA console TO sailfish_reader; \
           GRANT SELECT ON ALL TABLES IN SCHEMA console TO sailfish_reader; \
         EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL; \
         END $$"];
    for statement in statements {
        connection.execute(statement).await.map_err(|error| StoreError::from_driver(path, error))?;
    }
    Ok(())
}
