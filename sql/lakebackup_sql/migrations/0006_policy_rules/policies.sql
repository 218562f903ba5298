ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  keep_last INT COMMENT 'the newest so many backups are kept; null: no such rule',
  keep_hourly INT COMMENT 'the newest backup of each of the last so many hours that have one is kept; null: no such rule',
  keep_daily INT COMMENT 'as keep_hourly, of days',
  keep_weekly INT COMMENT 'as keep_hourly, of weeks, which begin on Monday',
  keep_monthly INT COMMENT 'as keep_hourly, of months',
  keep_yearly INT COMMENT 'as keep_hourly, of years',
  keep_differentials INT COMMENT 'of the fulls and of the backups right on one, only the newest so many keep what depends on them; null: no such limit',
  time_zone STRING COMMENT 'of the times of day and of the hours, days, weeks, months and years; null: UTC',
  command STRING COMMENT 'what a due run backs up, when not topics: arguments of lakebackup backup, a JSON array',
  drill_schedule STRING COMMENT 'when restores are tried; null: no schedule',
  drill_every_ms BIGINT COMMENT 'longest time from one trial to the next by that schedule'
)
