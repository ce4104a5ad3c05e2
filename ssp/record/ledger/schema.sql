CREATE TABLE IF NOT EXISTS episodes(
  id TEXT PRIMARY KEY, game_id TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL, outcome TEXT, cause TEXT,
  reward REAL, policy_version_min INTEGER, policy_version_max INTEGER, opponent_version_min INTEGER,
  opponent_version_max INTEGER, commit_role TEXT, commit_incarnation INTEGER, commit_step INTEGER,
  file TEXT, row INTEGER, created REAL NOT NULL, finished REAL,
  round INTEGER, kind TEXT, attempt INTEGER, issue INTEGER, incarnation INTEGER, past INTEGER, item TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS games(
  id TEXT PRIMARY KEY, target TEXT, question TEXT, verdict TEXT, rule TEXT, proposer_version INTEGER,
  attempts INTEGER, win_rate REAL,
  round INTEGER, kind TEXT, number INTEGER, incarnation INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters(role TEXT PRIMARY KEY, created INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS versions(
  role TEXT NOT NULL, version INTEGER NOT NULL, incarnation INTEGER, step INTEGER,
  created REAL NOT NULL, PRIMARY KEY(role, version), UNIQUE(role, incarnation, step));
CREATE TABLE IF NOT EXISTS commits(
  role TEXT NOT NULL, incarnation INTEGER NOT NULL, step INTEGER NOT NULL, version INTEGER NOT NULL,
  episodes INTEGER NOT NULL, members TEXT NOT NULL, rolled_back INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL,
  PRIMARY KEY(role, incarnation, step));
CREATE INDEX IF NOT EXISTS episodes_by_game ON episodes(game_id);
CREATE INDEX IF NOT EXISTS episodes_uncommitted ON episodes(role, state, commit_step) WHERE commit_step IS NULL;
CREATE INDEX IF NOT EXISTS episodes_void_paid ON episodes(role) WHERE state = 'voided' AND reward IS NOT NULL;
CREATE INDEX IF NOT EXISTS episodes_committed ON episodes(commit_role, commit_incarnation, commit_step, state, role)
  WHERE commit_step IS NOT NULL;
