-- What one connection counts as it writes, so that a step's proof need not read all rows again.
CREATE TEMP TABLE counted(role TEXT, state TEXT, number INTEGER NOT NULL, PRIMARY KEY(role, state));
CREATE TEMP TABLE bound(episodes INTEGER NOT NULL);
CREATE TEMP TABLE fresh(role TEXT, incarnation INTEGER, step INTEGER);
INSERT INTO counted SELECT role, state, count(*) FROM episodes GROUP BY role, state;
INSERT INTO bound SELECT coalesce(sum(episodes), 0) FROM commits WHERE NOT rolled_back;
CREATE TEMP TRIGGER episode_came AFTER INSERT ON main.episodes BEGIN
  INSERT INTO counted VALUES(new.role, new.state, 1) ON CONFLICT DO UPDATE SET number = number + 1;
END;
CREATE TEMP TRIGGER episode_went AFTER DELETE ON main.episodes BEGIN
  UPDATE counted SET number = number - 1 WHERE role = old.role AND state = old.state;
END;
CREATE TEMP TRIGGER episode_moved AFTER UPDATE OF role, state ON main.episodes
  WHEN (old.role, old.state) != (new.role, new.state) BEGIN
  UPDATE counted SET number = number - 1 WHERE role = old.role AND state = old.state;
  INSERT INTO counted VALUES(new.role, new.state, 1) ON CONFLICT DO UPDATE SET number = number + 1;
END;
CREATE TEMP TRIGGER commit_came AFTER INSERT ON main.commits BEGIN
  UPDATE bound SET episodes = episodes + new.episodes WHERE NOT new.rolled_back;
  INSERT INTO fresh VALUES(new.role, new.incarnation, new.step);
END;
CREATE TEMP TRIGGER commit_went AFTER DELETE ON main.commits BEGIN
  UPDATE bound SET episodes = episodes - old.episodes WHERE NOT old.rolled_back;
END;
CREATE TEMP TRIGGER commit_moved AFTER UPDATE OF episodes, rolled_back ON main.commits BEGIN
  UPDATE bound SET episodes = episodes - old.episodes WHERE NOT old.rolled_back;
  UPDATE bound SET episodes = episodes + new.episodes WHERE NOT new.rolled_back;
END;
